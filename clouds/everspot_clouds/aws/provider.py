"""All that there is of AWS, each part imported when it is asked for."""

from everspot_core.clock import Clock
from everspot_core.manifest import Manifest
from everspot_store import Store

from everspot_clouds.base import Cloud


class AwsProvider:
    """See `everspot_clouds.base.Provider`."""

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
