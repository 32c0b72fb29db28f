"""Types of figures that a job's program or another cluster reports. They are not trusted.

An impossible figure is read as unknown, and is no error, because the other fields of the document are still needed.
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
    """Return a validator that replaces a number outside the bounds by `unknown` and leaves every other value
    unchanged."""

    def check(value: Any) -> Any:
        if isinstance(value, int):
            return value if least <= value <= most else unknown
        if isinstance(value, float):
            return value if isfinite(value) and least <= value <= most else unknown
        return value

    return check


def parse_number(value: Any, least: float, most: float) -> float | None:
    """Return a number from an event's data; None if the value is no number, or is out of its bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        return None
    return float(value)


def update_metrics(metrics: Mapping[str, float], values: Mapping[str, float]) -> dict[str, float]:
    """Return the last values of a program's metrics once it has reported `values`.

    A metric whose last value is not finite has none: an earlier value says nothing of a model that has diverged.
    """
    return {name: value for name, value in {**metrics, **values}.items() if isfinite(value)}


def parse_count(value: Any) -> int | None:
    """Return a count from an event's data; None if the value is no count."""
    is_valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_STEPS
    return int(value) if is_valid else None


Step = Annotated[int, BeforeValidator(keep_within(0, MOST_STEPS, 0))]
"""A count of optimizer steps; 0 if the value is no count."""
Steps = Annotated[int | None, BeforeValidator(keep_within(0, MOST_STEPS))]
Rate = Annotated[float | None, BeforeValidator(keep_within(_SLOWEST, _FASTEST))]
PerEpoch = Annotated[float | None, BeforeValidator(keep_within(_SLOWEST, MOST_STEPS))]
"""Optimizer steps of one epoch, below 1 if a step spans several epochs; None: unknown."""
Seconds = Annotated[float | None, BeforeValidator(keep_within(0, MOST_SECONDS))]
Total = Annotated[float | None, BeforeValidator(keep_within(0, 1e18))]
"""A measured total, such as of bytes; None: not measured."""
Share = Annotated[float | None, BeforeValidator(keep_within(0, 1))]
"""A fraction of a whole; None: not known."""
Gib = Annotated[float | None, BeforeValidator(keep_within(0, _LARGEST))]
Billed = Annotated[float | None, AfterValidator(keep_within(0, _DEAREST))]
"""Dollars or GPU-hours on another cluster's bill; None: not known."""
