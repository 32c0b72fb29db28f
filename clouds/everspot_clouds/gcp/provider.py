"""The parts of the adapter to Google Cloud. Each is imported when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everspot_core.billing import BillingRules
    from everspot_core.catalogue import Catalogue
    from everspot_core.clock import Clock
    from everspot_core.governance.invoicing import Invoicing
    from everspot_core.job_rules import CloudRules
    from everspot_core.manifest import Manifest
    from everspot_core.market import Market
    from everspot_core.price_table import PriceTable
    from everspot_store import Store

    from everspot_clouds.base import Check, Cloud, Door, Metadata, Prover, Provider, Site


class GcpProvider:
    """See `everspot_clouds.base.Provider`."""

    def metadata(self, clock: Clock, getenv: Callable[[str], str | None]) -> Metadata:
        """See `Provider`."""
        from everspot_clouds.gcp.endpoints import metadata_base
        from everspot_clouds.gcp.metadata import GcpMetadata, MetadataServer

        return GcpMetadata(MetadataServer(metadata_base(getenv), clock), clock, getenv)

    def scheduling(self, manifest: Manifest, store: Store) -> Cloud:
        """See `Provider`."""
        from everspot_clouds.gcp.cloud import GcpCloud

        return GcpCloud.open(manifest, store.clock)

    def reading(self, manifest: Manifest, clock: Clock) -> Cloud | None:
        """See `Provider`."""
        from everspot_clouds.gcp.cloud import GcpCloud

        # Without the queue: its messages are the scheduler's.
        return GcpCloud.open(manifest.model_copy(update={"queue_url": None}), clock, reads=True)

    def errors(self) -> tuple[type[Exception], ...]:
        """See `Provider`."""
        from google.auth.exceptions import GoogleAuthError

        from everspot_clouds.base import CloudError
        from everspot_clouds.gcp.errors import ApiError, StillUnderWay

        return ApiError, StillUnderWay, GoogleAuthError, CloudError

    @property
    def billing(self) -> BillingRules:
        """See `Provider`."""
        from everspot_clouds.gcp.rules import BILLING

        return BILLING

    @property
    def invoicing(self) -> Invoicing:
        """See `Provider`."""
        from everspot_clouds.gcp.invoicing import INVOICING

        return INVOICING

    @property
    def jobs(self) -> CloudRules:
        """See `Provider`."""
        from everspot_clouds.gcp.rules import JOBS

        return JOBS

    @property
    def by_hand(self) -> bool:
        """See `Provider`."""
        return False

    def stop_within(self, market: Market) -> timedelta:
        """See `Provider`."""
        from everspot_core.market import Market

        from everspot_clouds.gcp.rules import STOP_SPOT, STOP_STANDARD

        return STOP_SPOT if market is Market.SPOT else STOP_STANDARD

    def notice(self, manifest: Manifest) -> timedelta:
        """See `Provider`: what was requested, and what is counted on of the time in which the guest shuts down."""
        from everspot_clouds.gcp.boot_rules import TRUSTED

        return (manifest.notice or timedelta(0)) + TRUSTED

    def checks(self, region: str | None, manifest: Manifest | None, catalogue: Catalogue, clock: Clock) -> list[Check]:
        """See `Provider`."""
        from everspot_clouds.gcp.checks import cloud_checks

        return cloud_checks(region, manifest, catalogue, clock)

    def price_table(self, region: str, types: Iterable[str], as_of: datetime, page: Callable[[], None]) -> PriceTable:
        """See `Provider`."""
        from everspot_store import SystemClock

        from everspot_clouds.gcp.pricelists import read

        return read(region, types, as_of, page, SystemClock.from_environment())

    def credentials(self, url: str, profile: str | None) -> Callable[[], dict[str, Any]] | None:
        """See `Provider`."""
        from everspot_clouds.gcp.credentials import for_store

        return for_store(url, profile)

    def proof(self, region: str) -> Prover:
        """See `Provider`."""
        from everspot_store import SystemClock

        from everspot_clouds.gcp.peers import proof

        return proof(region, SystemClock.from_environment())

    def peer_credentials(
        self, url: str, identity: str, audience: str, prove: Prover
    ) -> Callable[[], dict[str, Any]] | None:
        """See `Provider`."""
        from everspot_clouds.gcp.peers import credentials

        return credentials(identity, audience, prove)

    def secrets(self, region: str) -> Callable[[str], str]:
        """See `Provider`: they are of the project, whatever the region."""
        from everspot_store import SystemClock

        from everspot_clouds.gcp.secrets import GcpSecrets

        return GcpSecrets(SystemClock.from_environment())

    def site(self, manifest: Manifest) -> Site:
        """See `Provider`."""
        from everspot_store import SystemClock

        from everspot_clouds.gcp.site import GcpSite

        return GcpSite(manifest, SystemClock.from_environment())

    def door(self, manifest: Manifest) -> Door:
        """See `Provider`."""
        from everspot_store import SystemClock

        from everspot_clouds.gcp.http_api import open_api
        from everspot_clouds.gcp.instances import of_cluster
        from everspot_clouds.gcp.shell import IapTunnel

        api = open_api(SystemClock.from_environment(), manifest.account)
        return IapTunnel(api.project, lambda: of_cluster(api, manifest.cluster))


PROVIDER: Provider = GcpProvider()
