"""The pretend cloud's adapter for schedulers: one instance, which tests can preempt."""

from collections.abc import Iterable
from datetime import UTC, datetime

from everspot_clouds.base import CloudInstance, Message, MessageKind, Phase
from everspot_clouds.null_cloud import NullCloud
from everspot_core.capacity.market import Market
from everspot_core.costs.ledger import PricePoint
from everspot_core.jobs.records import Role

from pretend_cloud.rules import NOTICE

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class PretendCloud(NullCloud):
    """`preempted_at`: when the instance was taken, by what the world does; shared by all who look."""

    preempted_at: datetime | None = None

    def __init__(self) -> None:
        self._notified = False

    def instances(self) -> list[CloudInstance]:
        return [
            CloudInstance(
                instance_id="p-1", instance_type="e2-cpu", zone="us-central1-a", market=Market.SPOT, role=Role.AGENT,
                launched_at=BEGAN, phase=Phase.ENDED if self.preempted_at else Phase.ALIVE, ended_at=self.preempted_at,
                interrupted=True if self.preempted_at else None,
            )
        ]  # fmt: skip

    def messages(self) -> list[Message]:
        if self.preempted_at is None or self._notified:
            return []
        self._notified = True
        return [
            Message(kind=MessageKind.WARNING, handle="1", at=self.preempted_at - NOTICE, instance_id="p-1",
                    deadline=self.preempted_at)
        ]  # fmt: skip

    def spot_prices(self, pools: Iterable[tuple[str, str]], since: datetime) -> list[PricePoint]:
        return [
            PricePoint(instance_type=kind, zone=zone, market=Market.SPOT, at=BEGAN, usd_per_hour=3.6, source="pretence")
            for kind, zone in pools
        ]
