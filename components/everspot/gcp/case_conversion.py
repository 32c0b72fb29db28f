"""Converts field names of the API to snake_case, as the SDK has them in Python."""

import re
from typing import Any


def snake(value: Any) -> Any:
    """Return a value of the API with the names of its fields in snake_case, on every level."""
    if isinstance(value, dict):
        return {
            re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", key): snake(entry) for key, entry in value.items()
        }
    return [snake(entry) for entry in value] if isinstance(value, list) else value
