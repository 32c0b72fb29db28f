"""The parts of the AWS adapter. Each is imported when it is first used."""

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


class AwsProvider:
    """See `everspot_clouds.base.Provider`."""

    def metadata(self, clock: Clock, getenv: Callable[[str], str | None]) -> Metadata:
        """See `Provider`."""
        from everspot_clouds.aws.metadata import ImdsClient, ImdsMetadata, endpoint_from

        return ImdsMetadata(ImdsClient(endpoint_from(getenv), clock))

    def scheduling(self, manifest: Manifest, store: Store) -> Cloud:
        """See `Provider`."""
        from everspot_clouds.aws.cloud import AwsCloud

        return AwsCloud.open(manifest, store.clock)

    def reading(self, manifest: Manifest, clock: Clock) -> Cloud | None:
        """See `Provider`."""
        from everspot_clouds.aws.cloud import AwsCloud

        # Without the queue: its messages are the scheduler's.
        return AwsCloud.open(manifest.model_copy(update={"queue_url": None}), clock, reads=True)

    def errors(self) -> tuple[type[Exception], ...]:
        """See `Provider`."""
        from botocore.exceptions import BotoCoreError, ClientError

        return BotoCoreError, ClientError

    @property
    def billing(self) -> BillingRules:
        """See `Provider`."""
        from everspot_clouds.aws.rules import BILLING

        return BILLING

    @property
    def invoicing(self) -> Invoicing:
        """See `Provider`."""
        from everspot_clouds.aws.invoicing import INVOICING

        return INVOICING

    @property
    def jobs(self) -> CloudRules:
        """See `Provider`."""
        from everspot_clouds.aws.rules import JOBS

        return JOBS

    @property
    def by_hand(self) -> bool:
        """See `Provider`."""
        return False

    def stop_within(self, market: Market) -> timedelta:
        """See `Provider`."""
        from everspot_clouds.aws.rules import STOP

        return STOP

    def notice(self, manifest: Manifest) -> timedelta:
        """See `Provider`: EC2's warning, which cannot be chosen."""
        from everspot_clouds.aws.rules import NOTICE

        return NOTICE

    def checks(self, region: str | None, manifest: Manifest | None, catalogue: Catalogue, clock: Clock) -> list[Check]:
        """See `Provider`."""
        from everspot_clouds.aws.checks import cloud_checks

        return cloud_checks(region, manifest, catalogue, clock)

    def price_table(self, region: str, types: Iterable[str], as_of: datetime, page: Callable[[], None]) -> PriceTable:
        """See `Provider`."""
        from everspot_clouds.aws.pricelists import read

        return read(region, types, as_of, page)

    def credentials(self, url: str, profile: str | None) -> Callable[[], dict[str, Any]] | None:
        """See `Provider`."""
        from everspot_clouds.aws.credentials import for_store

        return for_store(url, profile)

    def proof(self, region: str) -> Prover:
        """See `Provider`."""
        from everspot_clouds.aws.peers import proof

        return proof(region)

    def peer_credentials(
        self, url: str, identity: str, audience: str, prove: Prover
    ) -> Callable[[], dict[str, Any]] | None:
        """See `Provider`."""
        from everspot_clouds.aws.peers import credentials

        return credentials(url, identity, audience, prove)

    def secrets(self, region: str) -> Callable[[str], str]:
        """See `Provider`."""
        from everspot_clouds.aws.secrets import AwsSecrets

        return AwsSecrets(region)

    def site(self, manifest: Manifest) -> Site:
        """See `Provider`."""
        from everspot_clouds.aws.site import AwsSite

        return AwsSite(manifest)

    def door(self, manifest: Manifest) -> Door:
        """See `Provider`."""
        from everspot_clouds.aws.shell import SessionManager

        return SessionManager(manifest.region)


PROVIDER: Provider = AwsProvider()
