"""Metrics that wait to be written to the store."""

import json
import math
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from everspot_core.clock import Clock
from everspot_store import ChunkWriter, Store

_MOST_LINES = 10_000


class MetricsBuffer:
    """The metrics of one ownership that are not in the store yet: the newest lines, if it is out of reach for long.

    `add` may be called by any thread, `write` by one at a time.
    """

    def __init__(self, store: Store, job_id: str, epoch: int, clock: Clock) -> None:
        self._chunks = ChunkWriter(store.metrics, job_id, epoch)
        self._clock = clock
        self._lock = threading.Lock()
        self._lines: deque[dict[str, Any]] = deque(maxlen=_MOST_LINES)
        self._pending: bytes | None = None

    @property
    def is_filling(self) -> bool:
        """Whether it should be written soon: half of it is in use."""
        return len(self._lines) >= _MOST_LINES // 2

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of a step. Numbers that are not finite are written as null; no metrics are no line."""
        if not metrics:
            return
        shown = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        with self._lock:
            self._lines.append({"step": step, "at": self._clock.now().isoformat(), "metrics": shown})

    def write(self) -> None:
        """Write all lines as one chunk. After an error the same chunk is written again by the next call.

        Raises:
            StoreError: if the store fails. The lines stay.
        """
        with self._lock:
            if self._pending is None and self._lines:
                self._pending = "".join(json.dumps(line, allow_nan=False) + "\n" for line in self._lines).encode()
                self._lines.clear()
        if self._pending is not None:
            self._chunks.append(self._pending)
            self._pending = None
