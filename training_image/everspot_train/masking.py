"""Takes the values of a job's secrets out of what is told of it: the one place that knows how a value is found.

The process that reads them gives its program their names (EVERSPOT_SECRET_NAMES), so that every process of the job
masks what it writes by itself: nothing depends on another one that may be killed.
"""

import functools
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

NAMES_VARIABLE = "EVERSPOT_SECRET_NAMES"
"""The variables that hold secrets, divided by commas."""
MASK = "[secret]"
SHORTEST = 4
"""Characters. Shorter values are not looked for: they stand in every log by chance."""


def wanted(secrets: Iterable[str]) -> list[str]:
    """What to look for: each value, each of its lines, and both as python's `repr` and JSON write them, because a
    `KeyError` tells its key so. The longest first: one may hold another."""
    lines = {line for secret in secrets for line in (secret, *secret.splitlines())}
    forms = {form for line in lines for form in (line, repr(line)[1:-1], json.dumps(line)[1:-1])}
    return sorted((form for form in forms if len(form) >= SHORTEST), key=lambda form: (-len(form), form))


def masked(value: Any, secrets: Sequence[str]) -> Any:
    """A text without the secrets; of what JSON holds, every text in it, keys too."""
    if isinstance(value, str):
        for form in wanted(secrets):
            value = value.replace(form, MASK)
        return value
    if isinstance(value, list):
        return [masked(one, secrets) for one in value]
    if isinstance(value, dict):
        return {masked(key, secrets): masked(one, secrets) for key, one in value.items()}
    return value


@functools.cache
def own_secrets() -> tuple[str, ...]:
    """The secrets of this process as they were when this was first asked: a program may clear its environment."""
    names = os.environ.get(NAMES_VARIABLE, "").split(",")
    return tuple(os.environ[name] for name in names if name in os.environ)
