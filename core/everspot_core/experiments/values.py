"""Values that the trials of a sweep give to the fields of a job."""

from math import isfinite
from typing import Annotated, Any

from pydantic import BeforeValidator


def _value(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        raise ValueError("has to be finite")  # JSON has no others, and the record could not be read again
    return value


Value = Annotated[str | int | float | bool, BeforeValidator(_value)]
