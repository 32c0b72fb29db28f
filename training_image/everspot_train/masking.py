"""Removes the values of a job's secrets from texts. This is the only module that knows how a value is recognised.

The process that reads the secrets gives the program their names (EVERSPOT_SECRET_NAMES). So every process of the job
masks its own output, and does not depend on another one that may be killed.
"""

import functools
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

NAMES_VARIABLE = "EVERSPOT_SECRET_NAMES"
"""The variable with the names of the variables that hold secrets, separated by commas."""
MASK = "[secret]"
SHORTEST = 4
"""The least length of a value that is looked for, in characters. Shorter ones appear in every log by chance."""


def secret_forms(secrets: Iterable[str]) -> list[str]:
    """Return the texts to look for, the longest first, since one may contain another: each value, each of its lines,
    and both as python's `repr` and JSON write them, because a `KeyError` shows its key so."""
    lines = {line for secret in secrets for line in (secret, *secret.splitlines())}
    forms = {form for line in lines for form in (line, repr(line)[1:-1], json.dumps(line)[1:-1])}
    return sorted((form for form in forms if len(form) >= SHORTEST), key=lambda form: (-len(form), form))


def masked(value: Any, secrets: Sequence[str]) -> Any:
    """Return a text without the secrets. In a JSON value all texts are masked, keys too."""
    if isinstance(value, str):
        for form in secret_forms(secrets):
            value = value.replace(form, MASK)
        return value
    if isinstance(value, list):
        return [masked(item, secrets) for item in value]
    if isinstance(value, dict):
        return {masked(key, secrets): masked(item, secrets) for key, item in value.items()}
    return value


@functools.cache
def own_secrets() -> tuple[str, ...]:
    """Return the secrets in this process's environment at the first call. A program may clear its environment later."""
    names = os.environ.get(NAMES_VARIABLE, "").split(",")
    return tuple(os.environ[name] for name in names if name in os.environ)
