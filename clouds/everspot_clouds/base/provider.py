"""The adapter to one cloud: the entry to all of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from everspot_core.capacity.catalogue import Catalogue
    from everspot_core.capacity.market import Market
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
    from everspot_clouds.base.metadata import Metadata
    from everspot_clouds.base.operator import RemoteAccess, Site
    from everspot_clouds.base.proof import Prover
    from everspot_clouds.base.registry_login import RegistryLogin


class Provider(Protocol):
    """The adapter to one cloud. Its module imports only packages that are installed everywhere; its methods import the
    cloud's clients."""

    def metadata(self, clock: Clock, getenv: Callable[[str], str | None]) -> Metadata:
        """Return the metadata service of the instance that asks. `getenv`: its environment."""
        ...

    def scheduling(self, manifest: Manifest, store: Store) -> Cloud:
        """Return the cloud for a cluster's scheduler. It listens to a queue if the manifest names one."""
        ...

    def reading(self, manifest: Manifest, clock: Clock, tables: Sequence[PriceTable] = ()) -> Cloud | None:
        """Return the cloud for a reader of the ledger, which changes nothing and takes no messages. None if the cloud
        knows nothing about instances beyond their own reports. `tables`: the cluster's price tables, for pools whose
        spot price the cloud does not state."""
        ...

    def errors(self) -> tuple[type[Exception], ...]:
        """Errors that calls to this cloud may raise, besides `OSError`. Raises `ImportError` if its client is not
        installed."""
        ...

    @property
    def billing(self) -> BillingRules:
        """The cloud's billing rules."""
        ...

    @property
    def invoicing(self) -> Invoicing:
        """How the cloud's own bill speaks of instances."""
        ...

    @property
    def jobs(self) -> CloudRules:
        """The cloud's rules for job files."""
        ...

    @property
    def by_hand(self) -> bool:
        """Whether people start the instances by hand. The running ones are then all the capacity that there is."""
        ...

    def stop_within(self, market: Market) -> timedelta:
        """Return how long an agent may take to stop its job once its machine is being switched off, real time."""
        ...

    def notice(self, manifest: Manifest) -> timedelta:
        """Return how long before an interruption a spot instance of a cluster knows of it, market time."""
        ...

    def checks(self, region: str | None, manifest: Manifest | None, catalogue: Catalogue, clock: Clock) -> list[Check]:
        """Return the checks of `everspot doctor` that ask the cloud, credentials first. `manifest` None: it cannot be
        read."""
        ...

    def price_table(
        self, region: str, types: Iterable[str], as_of: datetime, page: Callable[[], None], *, gpu_types: bool = False
    ) -> PriceTable:
        """Return prices and resources of types in a region now, by the cloud's own price lists.

        Args:
            region: of the cloud.
            types: by name. Those that the region does not have are left out.
            as_of: the date of the table.
            page: called after each page of an answer.
            gpu_types: whether all types with GPUs that the region has are read as well.

        Raises:
            CloudError: if they cannot be read.
        """
        ...

    def credentials(self, url: str, profile: str | None) -> Callable[[], dict[str, Any]] | None:
        """Return credentials of a person's tools for a store, in the form that `Store.open` takes; None if the store
        finds them by itself. A `profile` goes before all other credentials.

        Raises:
            CloudError: if there are none.
        """
        ...

    def select_profile(self, profile: str, environment: MutableMapping[str, str]) -> None:
        """Change an environment, so that all other calls to the cloud that a process and its children make use a
        profile."""
        ...

    def proof(self, region: str) -> Prover:
        """Proofs of who the asking instance is, for clouds of peers. `region`: of the instance.

        Raises:
            NotOffered: if its instances have no identity that others could verify.
        """
        ...

    def peer_credentials(
        self, url: str, identity: str, audience: str, prove: Prover
    ) -> Callable[[], dict[str, Any]] | None:
        """Return credentials for a peer's store in this cloud, in the form that `Store.open` takes; None if the store
        finds them by itself. They are requested again at each call, and end at `expires_at`; each call raises
        `CloudError` if they cannot be had.

        Args:
            url: of the peer's control bucket.
            identity: who the asking scheduler becomes here.
            audience: to whom its proof is made out; empty for the usual one.
            prove: proofs of the cloud of the asking scheduler, which may be this one.
        """
        ...

    def secrets(self, region: str) -> Callable[[str], str]:
        """Return a function that reads a job's secret by its reference, with the instance's role. It raises
        `CloudError` if the secret cannot be read; the message contains no value."""
        ...

    def registry_login(self, image: RegistryImage) -> RegistryLogin:
        """Return access to the registry of a job's image, with the instance's role.

        Raises:
            RegistryError: if the registry belongs to another cloud, or issues no credentials.
        """
        ...

    def job_credentials(self, manifest: Manifest, clock: Clock) -> Callable[[JobAccess], JobCredentials] | None:
        """Return a function that makes the credentials of one job, limited to its access; None if jobs have those of
        the instance. The function raises `ValueError` if the cloud cannot limit credentials to so many names."""
        ...

    def site(self, manifest: Manifest) -> Site:
        """Return the resources of a cluster in the cloud.

        Raises:
            NotOffered: if the cloud has no instances of its own.
        """
        ...

    def remote_access(self, manifest: Manifest) -> RemoteAccess:
        """Access to a cluster's instances.

        Raises:
            NotOffered: if there is none.
        """
        ...
