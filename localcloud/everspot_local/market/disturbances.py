"""How often a cloud's services do what their documentation allows and programs do not hope for.

Each kind has a rate: the share of its opportunities when it happens. Whether it happens follows from a seed, for each
kind apart, so that one kind's occasions do not move another's.
"""

import random
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True)
class DisturbanceRates:
    """Shares from 0 to 1, by kind.

    Attributes:
        conflict: conditional writes to the object store that fail because of another write under way.
        slow_down: requests to the object store that are refused because there are too many.
        duplicate: messages that a queue delivers a second time.
        reorder: receptions of messages in another order than they were sent in.
        late: events that arrive late.
        throttle: requests to other services than those of instances and of objects that are refused because there are
            too many.
    """

    conflict: float = 0.0
    slow_down: float = 0.0
    duplicate: float = 0.02
    reorder: float = 0.02
    late: float = 0.02
    throttle: float = 0.0

    def changed(self, overrides: Mapping[str, Any]) -> "DisturbanceRates":
        """Return the rates with some changed, by name.

        Raises:
            ValueError: naming every one that is unknown or no share from 0 to 1.
        """
        names = [field.name for field in fields(self)]
        values, wrong = dict[str, float](), []
        for name, value in overrides.items():
            if name not in names:
                wrong.append(f"there is no disturbance {name!r}; one of {', '.join(names)}")
                continue
            try:
                values[name] = float(value)
            except (TypeError, ValueError):
                values[name] = -1.0
            if not 0 <= values[name] <= 1:
                wrong.append(f"{name} must be a share from 0 to 1, not {value!r}")
        if wrong:
            raise ValueError("; ".join(wrong))
        return replace(self, **values)


CALM = DisturbanceRates(duplicate=0, reorder=0, late=0)
"""Rates at which nothing is disturbed."""


class Disturbances:
    """Decides whether something is disturbed.

    Attributes:
        rates: the present shares, which may be replaced at any time.
        counts: how often each kind has happened.
    """

    def __init__(self, rates: DisturbanceRates, seed: int) -> None:
        self.rates = rates
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._generators = {
            field.name: random.Random(f"{seed}/{field.name}")  # noqa: S311 - a market, not a secret
            for field in fields(rates)
        }

    def occurs(self, kind: str) -> bool:
        """Return whether this occasion is disturbed. `kind`: a field of `DisturbanceRates`."""
        share = getattr(self.rates, kind)
        with self._lock:
            happens = share > 0 and self._generators[kind].random() < share
            self.counts[kind] += happens
        return bool(happens)

    def shuffle(self, items: list[Any]) -> None:
        """Bring a list into another order."""
        with self._lock:
            self._generators["reorder"].shuffle(items)

    def fraction(self) -> float:
        """Return from 0 to 1 how much of the longest lateness an event has."""
        with self._lock:
            return self._generators["late"].random()
