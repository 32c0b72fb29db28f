"""Google Cloud as a cluster's scheduler sees it."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from everspot_core.capacity.launching import LaunchIntent
from everspot_core.capacity.market import Market
from everspot_core.clock import Clock
from everspot_core.cluster.gauges import Gauge
from everspot_core.cluster.manifest import Manifest
from everspot_core.cluster.notify import Notifications
from everspot_core.costs.ledger import PricePoint

from everspot_clouds.base import CloudEnd, CloudInstance, LaunchAnswer, Message, Phase, PlacementScore, Trouble
from everspot_clouds.gcp import errors, instances, quotas, terminations
from everspot_clouds.gcp.capacity import BulkLaunches
from everspot_clouds.gcp.gauges import MonitoringFigures
from everspot_clouds.gcp.http_api import Api, open_api
from everspot_clouds.gcp.instances import find_places
from everspot_clouds.gcp.messages import Subscriber
from everspot_clouds.gcp.notify import GcpSender
from everspot_clouds.gcp.placement import Obtainability
from everspot_clouds.gcp.powered_off_instances import PoweredOffInstances
from everspot_clouds.gcp.prices import SpotPrices, Tables, no_tables
from everspot_clouds.gcp.zones import Zones

LOOK_BACK = timedelta(hours=24)
"""How far back, market time, the first reading of the operations looks for ends."""
OVERLAP = timedelta(minutes=15)
"""Market time that successive reads of the operations overlap, because some operations take long."""
RETRYABLE = timedelta(minutes=1)
"""Real time after which operations are read again even if no instance has vanished."""


class GcpCloud:
    """The `Cloud` of a cluster on Google Cloud. Credentials, project and endpoints come from the environment, the
    project from the manifest if it names one."""

    def __init__(
        self,
        api: Api,
        manifest: Manifest,
        clock: Clock,
        listener: Subscriber | None,
        *,
        reads: bool = False,
        tables: Tables = no_tables,
    ) -> None:
        self._api, self._clock, self._listener = api, clock, listener
        self._cluster, self._control_url = manifest.cluster, manifest.control_url
        self._zones, self._region = Zones(api), manifest.region
        self._capacity = BulkLaunches(api, manifest.cluster, clock, manifest.notice, self._zones)
        self._prices, self._placement = SpotPrices(api, clock, tables), Obtainability(api, manifest.region, clock)
        self._gauges, self._sender = MonitoringFigures(api, manifest.cluster, manifest.region), GcpSender(api)
        self._powered_off = None if reads else PoweredOffInstances(api)
        self._described: dict[str, dict[str, Any]] | None = None
        self._ends: dict[str, CloudEnd] = {}
        self._missing: set[str] = set()
        self._looked: timedelta | None = None
        self._since = clock.now() - LOOK_BACK

    @classmethod
    def open(cls, manifest: Manifest, clock: Clock, *, reads: bool = False, tables: Tables = no_tables) -> "GcpCloud":
        """Listen to the manifest's subscription if it names one. `reads`: for a reader of the ledger, which changes
        nothing. `tables`: see `SpotPrices`. Raises `CloudError` if there are no credentials, or no project is known."""
        api = open_api(clock, manifest.account)
        listener = None
        if manifest.queue_url:
            listener = Subscriber(api, manifest.queue_url, manifest.notice or timedelta(0), clock).start()
        return cls(api, manifest, clock, listener, reads=reads, tables=tables)

    def instances(self) -> list[CloudInstance]:
        """See `Cloud`."""
        own = instances.of_cluster(self._api, self._region, self._cluster, self._control_url)
        described = {str(raw["id"]): raw for raw in own}
        if self._powered_off is not None:
            self._powered_off.look(described.values())
        parsed = [instances.parse(raw) for raw in described.values()]
        before = self._described or {}
        self._missing |= before.keys() - described.keys()
        self._missing |= {instance.instance_id for instance in parsed if instance.phase is Phase.ENDED}
        # A group's repair creates an instance with a new id under the old name (Compute API, Operation.targetId:
        # "identifies a specific incarnation"). So an instance that runs under its old id was restarted and has not
        # ended.
        for instance in parsed:
            if instance.phase is Phase.ALIVE:
                self._ends.pop(instance.instance_id, None)
        self._missing -= self._ends.keys()
        self._described = described
        return parsed

    def ends(self) -> list[CloudEnd]:
        """See `Cloud`. They come from the operations, which are read when an instance has vanished, and every
        `RETRYABLE`."""
        now = self._clock.monotonic()
        if self._missing or self._looked is None or now - self._looked >= RETRYABLE:
            alive, moment = (self._described or {}).keys() - self._missing, self._clock.now()
            zones = self._zones.list_zones(self._region)
            ended, unfinished = instances.ended(self._api, zones, self._since)
            self._ends |= {end.instance_id: end for end in ended if end.instance_id not in alive}
            self._ends = {name: end for name, end in self._ends.items() if end.ended_at > moment - LOOK_BACK}
            self._missing -= self._ends.keys()
            # An operation is read once it is done, which may be long after it began.
            self._looked, self._since = now, min(filter(None, (moment - OVERLAP, unfinished)))
        return list(self._ends.values())

    def messages(self) -> list[Message]:
        """See `Cloud`."""
        return self._listener.drain() if self._listener else []

    def acknowledge(self, messages: Iterable[Message]) -> None:
        """See `Cloud`."""
        if self._listener:
            self._listener.delete(messages)

    def spot_prices(self, pools: Iterable[tuple[str, str]], since: datetime) -> list[PricePoint]:
        """See `Cloud`."""
        return self._prices.spot_prices(pools, since)

    def placement_scores(
        self, types: Collection[str], count: int, regions: Collection[str] = ()
    ) -> list[PlacementScore]:
        """See `Cloud`."""
        return self._placement.scores(types, count, regions)

    def launch(self, intent: LaunchIntent) -> LaunchAnswer:
        """See `Cloud`."""
        return self._capacity.launch(intent)

    def terminate(self, instances: Iterable[str]) -> None:
        """See `Cloud`."""
        # By name and zone, because the conditions of roles know machines by their names. The description is read now,
        # because a group recreates instances under their old names, and an earlier description could map an id to a
        # name that another instance has.
        places, unreachable = find_places(self._api, self._region, self._cluster, self._control_url)
        terminations.terminate(self._api, instances, places, unreachable)

    def quota_name(self, instance_type: str, market: Market) -> str:
        """See `Cloud`."""
        return quotas.find_quota(instance_type, market)

    def publish_gauges(self, namespace: str, gauges: Mapping[Gauge, float], at: datetime) -> None:
        """See `Cloud`."""
        self._gauges.put(namespace, gauges, at)

    def notify(self, settings: Notifications, subject: str, text: str, data: dict[str, Any]) -> None:
        """See `Cloud`."""
        self._sender.send(settings, subject, text, data)

    def trouble(self, error: Exception) -> Trouble:
        """See `Cloud`."""
        return errors.trouble(error)

    def close(self) -> None:
        """See `Cloud`."""
        if self._listener:
            self._listener.close()
        self._api.close()


CLOUD = GcpCloud
"""The class that `PackageProvider` opens."""
