"""The pretend cloud's metadata service: the environment of the process."""

from collections.abc import Callable
from datetime import datetime

from everspot_clouds.base import Identity, MetadataError
from everspot_core.capacity.market import Market


class PretendMetadata:
    where = "PRETEND_MANIFEST"

    def __init__(self, getenv: Callable[[str], str | None]) -> None:
        self._getenv = getenv

    def manifest(self) -> str:
        text = self._getenv(self.where)
        if text is None:
            raise MetadataError("nobody pretends")
        return text

    def identity(self) -> Identity:
        return Identity(instance_id="p-1", instance_type="e2-cpu", zone="us-central1-a", market=Market.SPOT)

    def interruption(self) -> datetime | None:
        at = self._getenv("PRETEND_END")
        return datetime.fromisoformat(at) if at else None

    def rebalance(self) -> datetime | None:
        return None

    def end(self) -> bool:
        return False
