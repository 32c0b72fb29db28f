"""The delays of a cloud, in market time."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any

from everspot_core.documents import parse_duration

PER_POOL = ("pending", "boot", "visible")
"""Delays that may differ by pool: larger machines and images take longer."""


@dataclass(frozen=True)
class Delays:
    """The durations of a cloud's own actions, in market time."""

    submit: timedelta = timedelta(seconds=2)  # a fleet request until its first launches
    pending: timedelta = timedelta(seconds=8)  # launch until `running`
    fail: timedelta = timedelta(seconds=5)  # launch until a machine dies that is scripted not to start
    boot: timedelta = timedelta(seconds=20)  # launch until the image's boot command starts
    shutdown: timedelta = timedelta(seconds=30)  # SIGTERM until SIGKILL, when a user terminates an instance
    replace: timedelta = timedelta(seconds=15)  # the end of a fleet's instance until its replacement is requested
    retry: timedelta = timedelta(seconds=30)  # a fleet that lacks capacity, until it tries again
    heal: timedelta = timedelta(seconds=30)  # the end of a group's instance until its replacement
    notice: timedelta = timedelta(seconds=120)  # interruption notice until the instance is taken
    walk: timedelta = timedelta(seconds=600)  # from one price to the next
    access: timedelta = timedelta(seconds=120)  # a change of a policy until it has effect
    propagation: timedelta = timedelta(seconds=10)  # a new role or profile until other services know of it
    visible: timedelta = timedelta(seconds=3)  # launch until every description shows the instance
    operation: timedelta = timedelta(seconds=3)  # a change that is answered before it is done, until it is
    late: timedelta = timedelta(seconds=60)  # an event that is late (see `disturbances`), at most
    found: timedelta = timedelta()  # the answer that begins an operation until a read of the operation finds it
    remembered: timedelta = timedelta(hours=1)  # the end of an instance until no description shows it
    billed: timedelta = timedelta(hours=24)  # the first use of a tag until the bill knows it

    def changed(self, overrides: Mapping[str, Any]) -> "Delays":
        """Return the delays with some changed, by name: `90s`, `2m`, or seconds.

        Raises:
            ValueError: naming every one that is unknown or no span.
        """
        names = [field.name for field in fields(self)]
        values, wrong = {}, []
        for name, value in overrides.items():
            try:
                values[name] = span(value)
            except ValueError:
                values[name] = timedelta(-1)
            if name not in names:
                wrong.append(f"there is no delay {name!r}; one of {', '.join(names)}")
            elif values[name] < timedelta():
                wrong.append(f"{name} must be a span such as 90s or 2m, not {value!r}")
        if wrong:
            raise ValueError("; ".join(wrong))
        return replace(self, **values)


def span(value: Any) -> timedelta:
    """Read a span of market time from a text or a number of seconds.

    Raises:
        ValueError: if it is neither.
    """
    try:
        parsed = parse_duration(value)
        return parsed if isinstance(parsed, timedelta) else timedelta(seconds=float(parsed))
    except TypeError as error:
        raise ValueError(str(error)) from None
