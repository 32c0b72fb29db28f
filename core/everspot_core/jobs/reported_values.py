"""Types of the figures that a job's own program reports, or another cluster. They may report anything.

An impossible figure is read as unknown. It is not an error, because the rest of the document is still needed.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

MOST_STEPS = 10**15
MOST_SECONDS = 1e9  # seconds: 31 years
_LARGEST = 1e6  # GiB
_DEAREST = 1e9  # dollars, or GPU-hours, of one visit
_SLOWEST, _FASTEST = 1e-9, 1e9  # steps per second


def keep_within(least: float, most: float, unknown: Any = None) -> Callable[[Any], Any]:
    """Return a validator: a number outside of the bounds becomes `unknown`; every other value is unchanged."""

    def check(value: Any) -> Any:
        if isinstance(value, int):
            return value if least <= value <= most else unknown
        if isinstance(value, float):
            return value if isfinite(value) and least <= value <= most else unknown
        return value

    return check


def parse_number(value: Any, least: float, most: float) -> float | None:
    """Return a number of an event; None if the value is no number, or is out of its bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        return None
    return float(value)


def update_metrics(metrics: Mapping[str, float], values: Mapping[str, float]) -> dict[str, float]:
    """Return the last values of a program's metrics once it has reported `values`.

    A metric whose last value is not finite has none: an earlier value says nothing of a model that has diverged.
    """
    return {name: value for name, value in {**metrics, **values}.items() if isfinite(value)}


def parse_count(value: Any) -> int | None:
    """Return a count of an event; None if it cannot be one."""
    is_valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_STEPS
    return int(value) if is_valid else None


Step = Annotated[int, BeforeValidator(keep_within(0, MOST_STEPS, 0))]
"""A count of optimizer steps; 0 if the value cannot be one."""
Steps = Annotated[int | None, BeforeValidator(keep_within(0, MOST_STEPS))]
Rate = Annotated[float | None, BeforeValidator(keep_within(_SLOWEST, _FASTEST))]
PerEpoch = Annotated[float | None, BeforeValidator(keep_within(_SLOWEST, MOST_STEPS))]
"""Optimizer steps of one epoch: less than one where several epochs make a step; None: not known."""
Seconds = Annotated[float | None, BeforeValidator(keep_within(0, MOST_SECONDS))]
Total = Annotated[float | None, BeforeValidator(keep_within(0, 1e18))]
"""A sum that has been counted, such as of bytes; None: not measured."""
Share = Annotated[float | None, BeforeValidator(keep_within(0, 1))]
"""A fraction of a whole; None: not known."""
Gib = Annotated[float | None, BeforeValidator(keep_within(0, _LARGEST))]
Billed = Annotated[float | None, AfterValidator(keep_within(0, _DEAREST))]
"""Dollars or GPU-hours on another cluster's bill; None: not known."""
