"""The parts of the adapter to Google Cloud. Each is imported when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from everspot_clouds.base.package_provider import PackageProvider

if TYPE_CHECKING:
    from everspot_core.capacity.market import Market
    from everspot_core.capacity.price_table import PriceTable
    from everspot_core.clock import Clock
    from everspot_core.cluster.manifest import Manifest
    from everspot_core.jobs.access import JobAccess
    from everspot_store import Store

    from everspot_clouds.base import Cloud, JobCredentials, Metadata, Prover, Provider, RemoteAccess, Site


class GcpProvider(PackageProvider):
    """See `everspot_clouds.base.Provider`."""

    package = "everspot_clouds.gcp"

    def scheduling(self, manifest: Manifest, store: Store) -> Cloud:
        """See `Provider`."""
        from everspot_clouds.gcp.cloud import GcpCloud
        from everspot_clouds.gcp.prices import stored_tables

        return GcpCloud.open(manifest, store.clock, tables=lambda: stored_tables(store))

    def reading(self, manifest: Manifest, clock: Clock, tables: Sequence[PriceTable] = ()) -> Cloud | None:
        """See `Provider`."""
        from everspot_clouds.gcp.cloud import GcpCloud

        quiet = manifest.model_copy(update={"queue_url": None})
        return GcpCloud.open(quiet, clock, reads=True, tables=lambda: tables)

    def metadata(self, clock: Clock, getenv: Callable[[str], str | None]) -> Metadata:
        """See `Provider`."""
        from everspot_clouds.gcp.endpoints import metadata_base
        from everspot_clouds.gcp.metadata import GcpMetadata, MetadataServer

        return GcpMetadata(MetadataServer(metadata_base(getenv), clock), clock, getenv)

    def errors(self) -> tuple[type[Exception], ...]:
        """See `Provider`."""
        from google.auth.exceptions import GoogleAuthError

        from everspot_clouds.base import CloudError
        from everspot_clouds.gcp.errors import ApiError, StillUnderWay

        return ApiError, StillUnderWay, GoogleAuthError, CloudError

    def stop_within(self, market: Market) -> timedelta:
        """See `Provider`."""
        from everspot_core.capacity.market import Market

        from everspot_clouds.gcp.rules import STOP_SPOT, STOP_STANDARD

        return STOP_SPOT if market is Market.SPOT else STOP_STANDARD

    def notice(self, manifest: Manifest) -> timedelta:
        """See `Provider`: what was requested, and what is counted on of the time in which the guest shuts down."""
        from everspot_clouds.gcp.boot_rules import TRUSTED

        return (manifest.notice or timedelta(0)) + TRUSTED

    def price_table(
        self, region: str, types: Iterable[str], as_of: datetime, page: Callable[[], None], *, gpu_types: bool = False
    ) -> PriceTable:
        """See `Provider`."""
        from everspot_clouds.gcp.pricelists import read

        return read(region, types, as_of, page, _clock(), gpu_types=gpu_types)

    def proof(self, region: str) -> Prover:
        """See `Provider`."""
        from everspot_clouds.gcp.peers import proof

        return proof(region, _clock())

    def peer_credentials(
        self, url: str, identity: str, audience: str, prove: Prover
    ) -> Callable[[], dict[str, Any]] | None:
        """See `Provider`."""
        from everspot_clouds.gcp.peers import credentials

        return credentials(identity, audience, prove)

    def secrets(self, region: str) -> Callable[[str], str]:
        """See `Provider`: they are of the project, whatever the region."""
        from everspot_clouds.gcp.secrets import GcpSecrets

        return GcpSecrets(_clock())

    def job_credentials(self, manifest: Manifest, clock: Clock) -> Callable[[JobAccess], JobCredentials] | None:
        """See `Provider`. None in a cluster that was declared with `jobRole: false`, or by an earlier
        release."""
        if manifest.job_role is None:
            return None
        from everspot_clouds.gcp.job_credentials import GcpJobCredentials

        return partial(GcpJobCredentials, manifest, clock)

    def site(self, manifest: Manifest) -> Site:
        """See `Provider`."""
        from everspot_clouds.gcp.site import GcpSite

        return GcpSite(manifest, _clock())

    def remote_access(self, manifest: Manifest) -> RemoteAccess:
        """See `Provider`."""
        from everspot_clouds.gcp.http_api import open_api
        from everspot_clouds.gcp.instances import of_cluster
        from everspot_clouds.gcp.shell import IapTunnel

        api = open_api(_clock(), manifest.account)
        place = api, manifest.region, manifest.cluster, manifest.control_url
        return IapTunnel(api.project, lambda: list(of_cluster(*place)))


def _clock() -> Clock:
    """Return the market's clock, for calls that nobody gives one."""
    from everspot_store import SystemClock

    return SystemClock.from_environment()


PROVIDER: Provider = GcpProvider()
