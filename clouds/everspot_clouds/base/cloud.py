"""The protocol between a scheduler and a cloud, and the plain values of the answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from everspot_core.capacity.launching import LaunchError, LaunchIntent
    from everspot_core.capacity.market import Market
    from everspot_core.cluster.gauges import Gauge
    from everspot_core.cluster.notify import Notifications
    from everspot_core.costs.ledger import PricePoint
    from everspot_core.jobs.records import Role

    from everspot_clouds.base.errors import Trouble


class Phase(StrEnum):
    """The stage of an instance's life. An instance that is ENDING still runs, and its end cannot be stopped."""

    ALIVE = "alive"
    ENDING = "ending"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudInstance:
    """An instance of the cluster as its cloud describes it. Times are market time, as the API states them.

    `image`: the cloud's name of its image. `ended_at`: when it stopped costing money, if the API states it.
    `interrupted`: whether the cloud interrupted it; None while the API does not state the cause of its end. `launch`:
    the token of the launch intent that created it; empty for an instance of the standing fleets. `part_of`: the cloud's
    name of the fleet or group that keeps it running; empty if the cloud does not say. `failure`: the cloud's own error,
    if it ended the instance for one; at its launch, as a rule. `node`: of a pod, the cloud's name of its machine, and
    `node_share` the part of that machine that it is billed for, if the machine is not described as an instance too.
    """

    instance_id: str
    instance_type: str
    zone: str
    market: Market
    role: Role
    launched_at: datetime
    image: str = ""
    phase: Phase = Phase.ALIVE
    ended_at: datetime | None = None
    interrupted: bool | None = None
    launch: str = ""
    part_of: str = ""
    failure: LaunchError | None = None
    node: str = ""
    node_share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEnd:
    """The end of an instance that its cloud may no longer describe. `ended_at` (market time): the time when it stopped
    costing money; `interrupted`: whether the cloud interrupted it."""

    instance_id: str
    ended_at: datetime
    interrupted: bool


class MessageKind(StrEnum):
    """Kinds of messages from the cloud to a scheduler."""

    WARNING = "warning"  # the instance will be interrupted, at `deadline`
    REBALANCE = "rebalance"
    LAUNCHED = "launched"  # pending or running
    ENDING = "ending"
    ENDED = "ended"
    CAPACITY = "capacity"  # a fleet could not launch something; for the log
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A parsed message of the cloud. `handle` is used to delete it; each delivery has a new one."""

    kind: MessageKind
    handle: str
    at: datetime | None = None
    instance_id: str = ""
    deadline: datetime | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementScore:
    """A cloud's rating, at `at` (market time), of the chance to launch `count` spot instances of any of these types
    together: from 1 (low) to 10 (high). `zone` is a zone's name; empty for a region as a whole."""

    types: tuple[str, ...]
    region: str
    zone: str
    count: int
    score: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """An instance that a launch created. `node`, `node_share`: of a pod, as of `CloudInstance`."""

    instance_id: str
    instance_type: str
    zone: str
    node: str = ""
    node_share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAnswer:
    """A cloud's answer to a launch: the instances, which may be fewer than requested, and the refusals."""

    instances: tuple[Launched, ...] = ()
    errors: tuple[LaunchError, ...] = ()


class Cloud(Protocol):
    """A cloud, seen from one cluster's scheduler. Its methods raise the cloud's own errors, which `trouble`
    classifies."""

    def instances(self) -> list[CloudInstance]:
        """Return every instance of the cluster that the cloud still describes, the scheduler's own included."""
        ...

    def ends(self) -> list[CloudEnd]:
        """Ends of instances that the cloud reports apart from its description. Called after `instances`. Empty if the
        description includes ended instances, with their ends, for long enough."""
        ...

    def messages(self) -> list[Message]:
        """Messages that arrived since the last call, without waiting."""
        ...

    def acknowledge(self, messages: Iterable[Message]) -> None:
        """Delete these messages, whose effects are stored, so that they are not delivered again."""
        ...

    def spot_prices(self, pools: Iterable[tuple[str, str]], since: datetime) -> list[PricePoint]:
        """Spot prices of these pools (type, zone): the price in force at `since`, and every change after it."""
        ...

    def placement_scores(
        self, types: Collection[str], count: int, regions: Collection[str] = ()
    ) -> list[PlacementScore]:
        """Return the chance to get `count` spot instances of any of these types in each zone of the cluster's region;
        with `regions`, in each of those. It may be called often, because answers are remembered for a while. Empty if
        the cloud gives no scores, or none for so few types."""
        ...

    def launch(self, intent: LaunchIntent) -> LaunchAnswer:
        """Launch the instances of the intent, tagged with its token. A second call with the same intent launches
        nothing more and gives the same answer.

        Final refusals are part of the answer. If the call raises, the launch may have been carried out, or may still
        be: call again with the same intent.
        """
        ...

    def terminate(self, instances: Iterable[str]) -> None:
        """End these instances. Unknown and ended ones are skipped. If an instance cannot be ended, the others are ended
        all the same, and its error is raised at the end."""
        ...

    def quota_name(self, instance_type: str, market: Market) -> str:
        """Return the name of the quota that an instance counts towards. Instances of the same quota are refused
        together."""
        ...

    def publish_gauges(self, namespace: str, gauges: Mapping[Gauge, float], at: datetime) -> None:
        """Write these figures of the cluster, as of a moment, for alarms and dashboards. It is called in a separate
        thread."""
        ...

    def notify(self, settings: Notifications, subject: str, text: str, data: dict[str, Any]) -> None:
        """Send a notification to the recipients in the settings. It is called in a separate thread."""
        ...

    def trouble(self, error: Exception) -> Trouble:
        """Return the kind of failure of an error."""
        ...

    def close(self) -> None:
        """Stop listening and close connections. Idempotent."""
        ...
