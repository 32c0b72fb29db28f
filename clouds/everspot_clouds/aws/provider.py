"""All that there is of AWS, each part imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everspot_core.clock import Clock
    from everspot_core.manifest import Manifest
    from everspot_store import Store

    from everspot_clouds.base import Cloud, Metadata


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


PROVIDER = AwsProvider()
