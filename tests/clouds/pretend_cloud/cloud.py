"""The pretend cloud as a scheduler sees it: one instance, which is taken when somebody says so."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from everspot_clouds.base import CloudInstance, LaunchAnswer, Message, MessageKind, Phase, PlacementScore, Trouble
from everspot_core.gauges import Gauge
from everspot_core.launching import LaunchIntent
from everspot_core.ledger import PricePoint
from everspot_core.market import Market
from everspot_core.notify import Notifications
from everspot_core.records import Role

from pretend_cloud.rules import NOTICE

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class PretendCloud:
    """`taken`: when the instance was taken, by what the world does; shared by all who look."""

    taken: datetime | None = None

    def __init__(self) -> None:
        self._told = False

    def instances(self) -> list[CloudInstance]:
        return [
            CloudInstance(
                instance_id="p-1", instance_type="e2-cpu", zone="us-central1-a", market=Market.SPOT, role=Role.AGENT,
                launched_at=BEGAN, phase=Phase.ENDED if self.taken else Phase.ALIVE, ended_at=self.taken,
                interrupted=True if self.taken else None,
            )
        ]  # fmt: skip

    def messages(self) -> list[Message]:
        if self.taken is None or self._told:
            return []
        self._told = True
        return [
            Message(kind=MessageKind.WARNING, handle="1", at=self.taken - NOTICE, instance_id="p-1",
                    deadline=self.taken)
        ]  # fmt: skip

    def acknowledge(self, messages: Iterable[Message]) -> None:
        pass

    def spot_prices(self, pools: Iterable[tuple[str, str]], since: datetime) -> list[PricePoint]:
        return [
            PricePoint(instance_type=kind, zone=zone, market=Market.SPOT, at=BEGAN, usd_per_hour=3.6, source="pretence")
            for kind, zone in pools
        ]

    def placement_scores(
        self, types: Collection[str], count: int, regions: Collection[str] = ()
    ) -> list[PlacementScore]:
        return []

    def launch(self, intent: LaunchIntent) -> LaunchAnswer:
        return LaunchAnswer()

    def terminate(self, instances: Iterable[str]) -> None:
        pass

    def quota_of(self, instance_type: str, market: Market) -> str:
        return ""

    def keep_gauges(self, namespace: str, gauges: Mapping[Gauge, float], at: datetime) -> None:
        pass

    def notify(self, settings: Notifications, subject: str, text: str, data: dict[str, Any]) -> None:
        pass

    def trouble(self, error: Exception) -> Trouble:
        return Trouble.TRANSIENT

    def close(self) -> None:
        pass
