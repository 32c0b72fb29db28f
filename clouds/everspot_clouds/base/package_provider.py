"""The part of a cloud's adapter that is the same for every cloud: which module of its package has which part.

Each module is imported when it is first used, because the clouds' clients are not installed everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, cast

if TYPE_CHECKING:
    from everspot_core.capacity.catalogue import Catalogue
    from everspot_core.capacity.price_table import PriceTable
    from everspot_core.clock import Clock
    from everspot_core.cluster.checks import Check
    from everspot_core.cluster.manifest import Manifest
    from everspot_core.costs.billing import BillingRules
    from everspot_core.governance.invoicing import Invoicing
    from everspot_core.jobs.access import JobAccess
    from everspot_core.jobs.image_reference import RegistryImage
    from everspot_core.jobs.job_rules import CloudRules
    from everspot_store import Store

    from everspot_clouds.base.cloud import Cloud
    from everspot_clouds.base.job_credentials import JobCredentials
    from everspot_clouds.base.registry_login import RegistryLogin


class PackageRules:
    """The facts about a cloud, from the modules of its package.

    Attributes:
        package: The package, such as `everspot_clouds.aws`. Its modules `rules` and `invoicing` have the facts.
    """

    package: ClassVar[str]

    def _part(self, module: str, name: str) -> Any:
        return getattr(import_module(f"{self.package}.{module}"), name)

    @property
    def billing(self) -> BillingRules:
        """See `Provider`."""
        return cast("BillingRules", self._part("rules", "BILLING"))

    @property
    def invoicing(self) -> Invoicing:
        """See `Provider`."""
        return cast("Invoicing", self._part("invoicing", "INVOICING"))

    @property
    def jobs(self) -> CloudRules:
        """See `Provider`."""
        return cast("CloudRules", self._part("rules", "JOBS"))

    def registry_login(self, image: RegistryImage) -> RegistryLogin:
        """See `Provider`."""
        return cast("RegistryLogin", self._part("image_login", "log_in")(image))

    def job_credentials(self, manifest: Manifest, clock: Clock) -> Callable[[JobAccess], JobCredentials] | None:
        """See `Provider`: jobs have what the instance has, where the cloud cannot limit it."""
        return None


class PackageProvider(PackageRules):
    """What the adapters of clouds with an API have in common.

    The package's modules `cloud` (`CLOUD`), `checks` (`cloud_checks`), `pricelists` (`read`) and `credentials`
    (`for_store`, `select_profile`) have the parts. A provider adds the parts that its cloud builds in another way.
    """

    @property
    def by_hand(self) -> bool:
        """See `Provider`."""
        return False

    def scheduling(self, manifest: Manifest, store: Store) -> Cloud:
        """See `Provider`."""
        return cast("Cloud", self._part("cloud", "CLOUD").open(manifest, store.clock))

    def reading(self, manifest: Manifest, clock: Clock, tables: Sequence[PriceTable] = ()) -> Cloud | None:
        """See `Provider`."""
        # Without the queue: its messages are the scheduler's.
        quiet = manifest.model_copy(update={"queue_url": None})
        return cast("Cloud", self._part("cloud", "CLOUD").open(quiet, clock, reads=True))

    def checks(self, region: str | None, manifest: Manifest | None, catalogue: Catalogue, clock: Clock) -> list[Check]:
        """See `Provider`."""
        return cast("list[Check]", self._part("checks", "cloud_checks")(region, manifest, catalogue, clock))

    def price_table(
        self, region: str, types: Iterable[str], as_of: datetime, page: Callable[[], None], *, gpu_types: bool = False
    ) -> PriceTable:
        """See `Provider`."""
        return cast("PriceTable", self._part("pricelists", "read")(region, types, as_of, page, gpu_types=gpu_types))

    def credentials(self, url: str, profile: str | None) -> Callable[[], dict[str, Any]] | None:
        """See `Provider`."""
        read = self._part("credentials", "for_store")
        return cast("Callable[[], dict[str, Any]] | None", read(url, profile))

    def select_profile(self, profile: str, environment: MutableMapping[str, str]) -> None:
        """See `Provider`."""
        self._part("credentials", "select_profile")(profile, environment)
