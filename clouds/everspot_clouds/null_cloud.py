"""A cloud that has nothing, says nothing and does nothing. Clouds that lack a service inherit from it, and so do
stand-ins that answer one question only."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from everspot_core.capacity.launching import LaunchIntent
from everspot_core.capacity.market import Market
from everspot_core.cluster.gauges import Gauge
from everspot_core.cluster.notify import Notifications
from everspot_core.costs.ledger import PricePoint

from everspot_clouds.base import CloudEnd, CloudInstance, LaunchAnswer, Message, PlacementScore, Trouble


class NullCloud:
    """See `everspot_clouds.base.Cloud`. Every answer is empty, and every failure is transient."""

    def instances(self) -> list[CloudInstance]:
        """See `Cloud`. Returns an empty list."""
        return []

    def ends(self) -> list[CloudEnd]:
        """See `Cloud`: the descriptions contain them."""
        return []

    def messages(self) -> list[Message]:
        """See `Cloud`: there are never any."""
        return []

    def acknowledge(self, messages: Iterable[Message]) -> None:
        """See `Cloud`."""

    def spot_prices(self, pools: Iterable[tuple[str, str]], since: datetime) -> list[PricePoint]:
        """See `Cloud`: there are no prices."""
        return []

    def placement_scores(
        self, types: Collection[str], count: int, regions: Collection[str] = ()
    ) -> list[PlacementScore]:
        """See `Cloud`: there are no scores."""
        return []

    def launch(self, intent: LaunchIntent) -> LaunchAnswer:
        """See `Cloud`: nothing is launched, and nothing refused."""
        return LaunchAnswer()

    def terminate(self, instances: Iterable[str]) -> None:
        """See `Cloud`: none is known."""

    def quota_name(self, instance_type: str, market: Market) -> str:
        """See `Cloud`: there is one for everything."""
        return ""

    def publish_gauges(self, namespace: str, gauges: Mapping[Gauge, float], at: datetime) -> None:
        """See `Cloud`: nothing is written."""

    def notify(self, settings: Notifications, subject: str, text: str, data: dict[str, Any]) -> None:
        """See `Cloud`: nothing is sent."""

    def trouble(self, error: Exception) -> Trouble:
        """See `Cloud`."""
        return Trouble.TRANSIENT

    def close(self) -> None:
        """See `Cloud`."""
