"""The parts of the AWS adapter. Each is imported when it is first used."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from everspot_clouds.base.package_provider import PackageProvider

if TYPE_CHECKING:
    from everspot_core.capacity.market import Market
    from everspot_core.clock import Clock
    from everspot_core.cluster.manifest import Manifest
    from everspot_core.jobs.access import JobAccess

    from everspot_clouds.base import JobCredentials, Metadata, Prover, Provider, RemoteAccess, Site


class AwsProvider(PackageProvider):
    """See `everspot_clouds.base.Provider`."""

    package = "everspot_clouds.aws"

    def metadata(self, clock: Clock, getenv: Callable[[str], str | None]) -> Metadata:
        """See `Provider`."""
        from everspot_clouds.aws.metadata import ImdsClient, ImdsMetadata, endpoint_from

        return ImdsMetadata(ImdsClient(endpoint_from(getenv), clock))

    def errors(self) -> tuple[type[Exception], ...]:
        """See `Provider`."""
        from botocore.exceptions import BotoCoreError, ClientError

        return BotoCoreError, ClientError

    def stop_within(self, market: Market) -> timedelta:
        """See `Provider`."""
        from everspot_clouds.aws.rules import STOP

        return STOP

    def notice(self, manifest: Manifest) -> timedelta:
        """See `Provider`: EC2's warning, which cannot be chosen."""
        from everspot_clouds.aws.rules import NOTICE

        return NOTICE

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

    def job_credentials(self, manifest: Manifest, clock: Clock) -> Callable[[JobAccess], JobCredentials] | None:
        """See `Provider`. None in a cluster that was declared with `jobRole: false`, or by an earlier
        release."""
        if manifest.job_role is None:
            return None
        from everspot_clouds.aws.job_credentials import AwsJobCredentials

        return partial(AwsJobCredentials, manifest.job_role, manifest, clock)

    def site(self, manifest: Manifest) -> Site:
        """See `Provider`."""
        from everspot_clouds.aws.site import AwsSite

        return AwsSite(manifest)

    def remote_access(self, manifest: Manifest) -> RemoteAccess:
        """See `Provider`."""
        from everspot_clouds.aws.shell import SessionManager

        return SessionManager(manifest.region)


PROVIDER: Provider = AwsProvider()
