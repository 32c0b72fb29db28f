"""All that there is of the pretend cloud."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from everspot_clouds.base import (
    Check,
    Handover,
    Proof,
    Prover,
    Provider,
    RegistryLogin,
    RemainingResource,
    RemoteAccess,
    Site,
    Trouble,
    Verdict,
)
from everspot_clouds.image_registry import RegistryError
from everspot_core.capacity.catalogue import Catalogue
from everspot_core.capacity.market import Market
from everspot_core.capacity.price_table import PriceTable, TypePrice
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest
from everspot_core.costs.billing import BillingRules
from everspot_core.governance.invoicing import Invoicing
from everspot_core.jobs.image_reference import RegistryImage
from everspot_core.jobs.job_rules import CloudRules
from everspot_store import Store

from pretend_cloud.cloud import BEGAN, PretendCloud
from pretend_cloud.metadata import PretendMetadata
from pretend_cloud.rules import BILLING, INVOICING, JOBS, NOTICE


class PretendDoor:
    def enter(self, instance_id: str, command: str) -> Handover:
        return Handover(command=("true",), needs=(("true", "the truth"),), install="", denied="")

    def forward(self, instance_id: str, port: int, local: int) -> Handover:
        return Handover(command=("true",), needs=(("pretend", "the pretender"),), install="pretend harder", denied="")


class PretendSite:
    def list_unbilled(self) -> list[RemainingResource]:
        return []

    def list_other_services(self) -> list[RemainingResource]:
        return []

    def removal(self, resource: RemainingResource) -> str:
        return ""

    def remove(self, resources: Iterable[RemainingResource]) -> None:
        raise AssertionError("nothing of it is an orphan")

    def remaining(self) -> list[RemainingResource]:
        return [RemainingResource(kind="petal", name="p-1")]

    def end(self, instances: Iterable[str]) -> None:
        """Nothing is there to end."""


class PretendProvider:
    billing: BillingRules = BILLING
    invoicing: Invoicing = INVOICING
    jobs: CloudRules = JOBS
    by_hand = False

    def metadata(self, clock: Clock, getenv: Callable[[str], str | None]) -> PretendMetadata:
        return PretendMetadata(getenv)

    def scheduling(self, manifest: Manifest, store: Store) -> PretendCloud:
        return PretendCloud()

    def reading(self, manifest: Manifest, clock: Clock, tables: Sequence[PriceTable] = ()) -> PretendCloud:
        return PretendCloud()

    def errors(self) -> tuple[type[Exception], ...]:
        return ()

    def stop_within(self, market: Market) -> timedelta:
        return NOTICE

    def notice(self, manifest: Manifest) -> timedelta:
        return NOTICE

    def checks(self, region: str | None, manifest: Manifest | None, catalogue: Catalogue, clock: Clock) -> list[Check]:
        return [Check("credentials", "credentials", Verdict.OK, f"anybody in {region}")]

    def price_table(
        self, region: str, types: Iterable[str], as_of: datetime, page: Callable[[], None], *, gpu_types: bool = False
    ) -> PriceTable:
        page()
        return PriceTable(
            cloud="pretend", region=region, as_of=as_of, on_demand_source="pretence", spot_source="pretence",
            prices=[TypePrice(instance_type="e2-cpu", on_demand_usd_per_hour=7.2)],
        )  # fmt: skip

    def credentials(self, url: str, profile: str | None) -> Callable[[], dict[str, Any]] | None:
        return None

    def proof(self, region: str) -> Prover:
        return lambda audience: Proof("rumour", f"somebody from {region} for {audience}", region)

    def peer_credentials(
        self, url: str, identity: str, audience: str, prove: Prover
    ) -> Callable[[], dict[str, Any]] | None:
        return lambda: {"token": f"{identity} by {prove(audience).text}", "expires_at": BEGAN}

    def secrets(self, region: str) -> Callable[[str], str]:
        return {"vault:petals": f"tulips of {region}"}.__getitem__

    def registry_login(self, image: RegistryImage) -> RegistryLogin:
        raise RegistryError("the pretend cloud has no registry", Trouble.REQUEST)

    def job_credentials(self, manifest: Manifest, clock: Clock) -> None:
        return None

    def site(self, manifest: Manifest) -> Site:
        return PretendSite()

    def remote_access(self, manifest: Manifest) -> RemoteAccess:
        return PretendDoor()


PROVIDER: Provider = PretendProvider()
