"""Puts the project together, and its services behind one endpoint."""

from collections.abc import Callable
from typing import Any

from everspot_clouds.price_files import project_table
from everspot_core.capacity.catalogue import builtin

from everspot_local.gcp.compute import routes as compute_routes
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.compute.vms import LAUNCH_FAILURES
from everspot_local.gcp.environment import XML
from everspot_local.gcp.metadata.documents import Values
from everspot_local.gcp.metadata.service import MetadataServers
from everspot_local.gcp.products import Products
from everspot_local.gcp.project import Project
from everspot_local.gcp.router import Router, Service
from everspot_local.gcp.storage.disturbed import DisturbedStorage
from everspot_local.machines.lifecycle import Machines
from everspot_local.machines.processes import Boot
from everspot_local.market.market import LocalMarket
from everspot_local.market.market_log import Journal
from everspot_local.options import Options


class GcpProvider:
    """A local Google Cloud."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def zone_ids(self, region: str) -> dict[str, str]:
        """Return the region's zones by name; here an id is the name.

        Raises:
            ValueError: for a region without zones in the catalogue and in the project's price tables.
        """
        catalogue, table = builtin(), project_table("gcp", region)
        zones = {zone for kind in catalogue.offered(region) for zone in catalogue.zones(kind, region)}
        zones |= {zone for row in (table.prices if table is not None else ()) for zone in row.spot_usd_per_hour}
        if not zones:
            raise ValueError(f"neither the catalogue nor a price table of the project has zones of {region!r}")
        return {zone: zone for zone in sorted(zones)}

    def join(self, market: LocalMarket) -> None:
        """Make the project."""
        self.project = assemble(self._options, market)
        self.machines, self.calls = self.project.machines, self.project.calls

    def application(self) -> Callable[..., Any]:
        """Return all of the project's services as one WSGI application."""
        self.compute = compute = Compute(self.project)
        self.project.metadata = MetadataServers(Values(compute), self.project.market)
        self.products = Products(self.project, compute.resources.get)
        compute.operations.listeners.append(self.products.heard)
        self.services = services(compute, self.products)
        router = Router(self.project, self.services, self.products.otherwise)
        return DisturbedStorage(router, XML, lambda: self.project.market.disturbances)

    def answer_at(self, endpoint: str) -> None:
        """Set the URL at which all services answer."""
        self.project.endpoint = endpoint

    def reset(self) -> None:
        """Empty the project."""
        self.project.reset()

    def close(self) -> None:
        """Close the metadata servers."""
        self.project.close()


def open_provider(options: Options) -> GcpProvider:
    """Return a local Google Cloud."""
    return GcpProvider(options)


def assemble(options: Options, market: LocalMarket) -> Project:
    """Return an empty project, whose machines take their instances from a market."""
    machines = Machines(market, Boot(options.state_dir / "instances", options.boot_command, options.data_dir))
    machines.failure_codes = LAUNCH_FAILURES
    return Project(options, market, machines, Journal(options.state_dir / "calls.jsonl"))


def services(compute: Compute, products: Products) -> list[Service]:
    """Return a project's services, in the order in which they are tried."""
    routes = compute_routes.routes(compute)
    return [Service("compute.v1", "", routes, modern=False, locked=True), *products.services()]
