"""AWS for the scheduler: EC2 gives instances and prices, SQS gives EventBridge's messages."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import boto3
from botocore.config import Config
from everspot_core.capacity.launching import LaunchIntent
from everspot_core.capacity.market import Market
from everspot_core.clock import Clock
from everspot_core.cluster.gauges import Gauge
from everspot_core.cluster.manifest import Manifest
from everspot_core.cluster.notify import Notifications
from everspot_core.costs.ledger import PricePoint

from everspot_clouds.aws import capacity, errors, instances, prices, quotas
from everspot_clouds.aws.gauges import Gauges
from everspot_clouds.aws.messages import LONG_POLL, Listener
from everspot_clouds.aws.notify import Sender
from everspot_clouds.aws.placement import PlacementScores
from everspot_clouds.aws.volumes import VolumeTags
from everspot_clouds.base import CloudEnd, CloudInstance, LaunchAnswer, Message, PlacementScore, Trouble

_TRIES = 3
_CONNECT = timedelta(seconds=5)
_READ = timedelta(seconds=15)


class AwsCloud:
    """The `Cloud` of a cluster on AWS. Credentials, region and endpoints come from the standard environment."""

    def __init__(
        self,
        ec2: Any,
        manifest: Manifest,
        listener: Listener | None,
        sender: Sender | None,
        placement: PlacementScores,
        gauges: Gauges,
        *,
        reads: bool = False,
        is_own: instances.Ownership,
    ) -> None:
        self._ec2, self._listener, self._sender = ec2, listener, sender
        self._cluster, self._is_own = manifest.cluster, is_own
        self._placement, self._gauges = placement, gauges
        self._volumes = None if reads else VolumeTags(ec2)

    @classmethod
    def open(
        cls,
        manifest: Manifest,
        clock: Clock,
        *,
        long_poll: timedelta = LONG_POLL,
        reads: bool = False,
        is_own: instances.Ownership | None = None,
    ) -> "AwsCloud":
        """Make the clients for the manifest's region, and listen to its queue if it names one. `reads`: for a reader of
        the ledger, which changes nothing in EC2; `is_own`: by default the ownership by the store's mark."""
        session = boto3.Session(region_name=manifest.region or None)
        ec2 = session.client("ec2", config=_config(_READ))
        listener = None
        if manifest.queue_url:
            sqs = session.client("sqs", config=_config(long_poll + _READ))
            listener = Listener(sqs, manifest.queue_url, long_poll=long_poll).start()
        is_own = is_own or instances.owned_by_store(manifest.control_url)
        sender, gauges = Sender(session, _config(_READ)), Gauges(session, _config(_READ), manifest.cluster)
        return cls(ec2, manifest, listener, sender, PlacementScores(ec2, clock), gauges, reads=reads, is_own=is_own)

    def instances(self) -> list[CloudInstance]:
        """See `Cloud`."""
        described = instances.described(self._ec2, self._cluster, self._is_own)
        if self._volumes is not None:
            self._volumes.look(described)
        return [instances.parse(raw) for raw in described]

    def ends(self) -> list[CloudEnd]:
        """See `Cloud`. Empty, because EC2 describes an ended instance for about an hour, with its end."""
        return []

    def messages(self) -> list[Message]:
        """See `Cloud`."""
        return self._listener.drain() if self._listener else []

    def acknowledge(self, messages: Iterable[Message]) -> None:
        """See `Cloud`."""
        if self._listener:
            self._listener.delete(messages)

    def spot_prices(self, pools: Iterable[tuple[str, str]], since: datetime) -> list[PricePoint]:
        """See `Cloud`."""
        return prices.spot_prices(self._ec2, pools, since)

    def placement_scores(
        self, types: Collection[str], count: int, regions: Collection[str] = ()
    ) -> list[PlacementScore]:
        """See `Cloud`."""
        return self._placement.scores(types, count, regions)

    def launch(self, intent: LaunchIntent) -> LaunchAnswer:
        """See `Cloud`."""
        return capacity.launch(self._ec2, self._cluster, intent)

    def terminate(self, instances: Iterable[str]) -> None:
        """See `Cloud`."""
        capacity.terminate(self._ec2, instances)

    def quota_name(self, instance_type: str, market: Market) -> str:
        """See `Cloud`."""
        quota = quotas.find_quota(instance_type, market)
        return quota.code if quota is not None else instance_type.partition(".")[0]

    def publish_gauges(self, namespace: str, gauges: Mapping[Gauge, float], at: datetime) -> None:
        """See `Cloud`."""
        self._gauges.put(namespace, gauges, at)

    def notify(self, settings: Notifications, subject: str, text: str, data: dict[str, Any]) -> None:
        """See `Cloud`."""
        if self._sender is not None:
            self._sender.send(settings, subject, text, data)

    def trouble(self, error: Exception) -> Trouble:
        """See `Cloud`."""
        return errors.trouble(error)

    def close(self) -> None:
        """See `Cloud`."""
        if self._listener:
            self._listener.close()
        self._gauges.close()
        self._ec2.close()


def _config(read: timedelta) -> Config:
    return Config(
        connect_timeout=_CONNECT.total_seconds(),
        read_timeout=read.total_seconds(),
        retries={"mode": "standard", "total_max_attempts": _TRIES},
    )


CLOUD = AwsCloud
"""The class that `PackageProvider` opens."""
