"""Writes the market's own records: launches, ends and prices, one JSON object per line.

It computes no bill; a bill is computed from these lines and nothing else.
"""

import json
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

from everspot_local.market.clock import stamp


class Journal:
    """An append-only file with one JSON object per line, each flushed immediately."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._file = path.open("wb", buffering=0)

    def write(self, line: dict[str, Any]) -> None:
        """Append one line. Nothing is written after `close`."""
        written = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if not self._file.closed:
                self._file.write(written)

    def read(self) -> list[dict[str, Any]]:
        """Return all lines so far."""
        with self._lock:
            return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]

    def restart(self) -> None:
        """Start over with an empty file."""
        with self._lock:
            self._file.seek(0)
            self._file.truncate()

    def close(self) -> None:
        """Stop writing."""
        with self._lock:
            self._file.close()


class MarketLog(Journal):
    """market.jsonl: launches, ends and prices, at whole seconds of market time.

    A bill follows from it alone: an instance costs, from `launch` to `end`, its own `usd_per_hour` when it is
    on-demand, and the price of its pool of each moment when it is Spot.
    """

    def launch(self, instance: str, kind: str, zone: str, market: str, usd: float | None, at: datetime) -> None:
        """Record that an instance costs from now on. `usd`: its price per hour if it is on-demand, else None."""
        line = {"event": "launch", "at": stamp(at), "id": instance, "type": kind, "zone": zone, "market": market}
        self.write(line if usd is None else {**line, "usd_per_hour": usd})

    def end(self, instance: str, interrupted: bool, at: datetime) -> None:
        """Record the end of an instance's costs. `interrupted`: True if the market reclaimed it, False if its user or
        the instance itself ended it."""
        self.write({"event": "end", "at": stamp(at), "id": instance, "interrupted": interrupted})

    def price(self, kind: str, zone: str, usd: float, at: datetime) -> None:
        """Record that a Spot hour of this pool costs `usd` from now on."""
        self.write({"event": "price", "at": stamp(at), "type": kind, "zone": zone, "usd": usd})
