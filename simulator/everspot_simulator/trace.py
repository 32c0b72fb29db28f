"""A trace: the spot capacity that there was, tick by tick, and its price.

The format is that of the public spot traces: `{"metadata": {"gap_seconds": s}, "data": [n, …], "prices": [$/h, …]}`.
Ticks are s seconds apart, `data` has the instances available at each tick, `prices` may be absent.
"""

import json
import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from everspot_core.validation.problems import Problems
from numpy.typing import NDArray


class Spells(NamedTuple):
    """A trace as spells, runs of ticks without a change: three arrays of equal length, in order of time.

    `start` and `length` count ticks; `up` says whether there was enough capacity.
    """

    start: NDArray[np.int64]
    length: NDArray[np.int64]
    up: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Capacity over time.

    Attributes:
        available: instances at each tick, shape (ticks,).
        prices: $/h, same shape, or None.
    """

    name: str
    gap: timedelta
    available: NDArray[np.int64]
    prices: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        for array in (self.available, self.prices):
            if array is not None:
                array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.available)

    @property
    def tick_seconds(self) -> float:
        """The length of a tick."""
        return self.gap.total_seconds()

    def up(self, nodes: int = 1) -> NDArray[np.bool_]:
        """Return whether a gang of `nodes` instances could run, by tick; fewer instances are of no use to it."""
        return self.available >= nodes

    def spells(self, nodes: int = 1) -> Spells:
        """Return the runs of ticks with and without capacity for `nodes`."""
        up = self.up(nodes)
        start = np.flatnonzero(np.concatenate(([True], up[1:] != up[:-1])))
        return Spells(start, np.diff(start, append=len(up)), up[start])

    def on_clock(self, tick: timedelta) -> "Trace":
        """Return the trace as a clock of whole ticks sees it; a tick that the trace does not cover is left out.

        In each tick there are as many instances as there are all through it, because an instance that goes before the
        next decision is of no use until then. The price of a tick is the mean over it.
        """
        if tick == self.gap:
            return self
        count = self.gap * len(self) // tick
        first = [n * tick // self.gap for n in range(count)]
        last = [-(-(n + 1) * tick // self.gap) for n in range(count)]
        spans = list(zip(first, last, strict=True))
        available = np.array([self.available[a:b].min() for a, b in spans], dtype=np.int64)
        if self.prices is None:
            return Trace(name=self.name, gap=tick, available=available)
        # The cost of holding the pool from the first tick to each edge, linear between two edges of the trace.
        paid = np.concatenate(([0.0], np.cumsum(self.prices)))
        edges = np.interp(np.arange(count + 1) * (tick / self.gap), np.arange(len(paid)), paid)
        return Trace(name=self.name, gap=tick, available=available, prices=np.diff(edges) / (tick / self.gap))

    def to_json(self) -> str:
        """Return the trace as `parse` takes it."""
        seconds = self.tick_seconds
        content: dict[str, Any] = {"metadata": {"gap_seconds": int(seconds) if seconds.is_integer() else seconds}}
        content["data"] = self.available.tolist()
        if self.prices is not None:
            content["prices"] = self.prices.tolist()
        return json.dumps(content)


def parse(content: str | dict[str, Any], name: str) -> Trace:
    """Return a trace from the text of its file, or from the values decoded from it. `name`: its path, or another name
    for it.

    Raises:
        BadInputs: naming every field that is wrong, and the allowed values.
    """
    problems = Problems()
    values = _decode(content, problems)
    seconds = _gap(values.get("metadata"), problems)
    data = _data(values.get("data"), problems)
    prices = _prices(values.get("prices"), len(data), problems)
    problems.raise_any(f"trace {name}")
    return Trace(
        name=name,
        gap=timedelta(seconds=seconds),
        available=np.array(data, dtype=np.int64),
        prices=None if prices is None else np.array(prices, dtype=np.float64),
    )


def _decode(content: str | dict[str, Any], problems: Problems) -> dict[str, Any]:
    values: object = content
    if isinstance(content, str):
        try:
            values = json.loads(content)
        except ValueError as error:
            problems.add("", f"not JSON: {error}")
            problems.raise_any("a trace")
    if not isinstance(values, dict):
        problems.add("", 'must be an object like {"metadata": {"gap_seconds": 300}, "data": [0, 1]}')
        return {}
    return values


def _gap(metadata: object, problems: Problems) -> float:
    seconds = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    # A timedelta holds whole microseconds, up to about 10^14 seconds.
    if not _number(seconds) or not 1e-6 <= seconds <= 1e9:
        problems.add(
            "metadata.gap_seconds", f"must be a number > 0: the seconds between ticks; it is {_brief(seconds)}"
        )
        return 1.0
    return float(seconds)


def _data(data: object, problems: Problems) -> list[int]:
    if not isinstance(data, list) or not data:
        problems.add("data", f"must be a list of whole numbers >= 0, one per tick, not empty; it is {_brief(data)}")
        return []
    bad = [i for i, n in enumerate(data) if type(n) is not int or not 0 <= n < 2**63]
    if bad:
        problems.add(f"data[{bad[0]}]", f"must be a whole number >= 0; it is {_brief(data[bad[0]])}{_more(bad)}")
    return data


def _prices(prices: object, ticks: int, problems: Problems) -> list[float] | None:
    if prices is None:
        return None
    if not isinstance(prices, list) or len(prices) != ticks:
        description = f"{len(prices)} of them" if isinstance(prices, list) else _brief(prices)
        problems.add("prices", f"must be a list as long as data ({ticks}), $/h at each tick; it is {description}")
        return None
    bad = [i for i, p in enumerate(prices) if not _number(p) or not 0 < p < math.inf]
    if bad:
        problems.add(f"prices[{bad[0]}]", f"must be a number > 0 in $/h; it is {_brief(prices[bad[0]])}{_more(bad)}")
    return prices


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _more(bad: list[int]) -> str:
    return f" (and {len(bad) - 1} more like it)" if len(bad) > 1 else ""


def _brief(value: object) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
