"""Removes the values of a job's secrets from texts. This is the only module that knows how a value is recognised.

The process that reads the secrets gives the program their names (EVERSPOT_SECRET_NAMES). So every process of the job
masks its own output, and does not depend on another one that may be killed.
"""

import base64
import functools
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

NAMES_VARIABLE = "EVERSPOT_SECRET_NAMES"
"""The variable with the names of the variables that hold secrets, separated by commas."""
MASK = "[secret]"
SHORTEST = 4
"""The least length of a value that is looked for, in characters. Shorter ones appear in every log by chance."""
SHORTEST_INNER = 8
"""The same for a text inside a JSON value, which may be a user's name or a port beside a password."""


def secret_forms(secrets: Iterable[str]) -> list[str]:
    """Return the texts to look for, the longest first, since one may contain another: each value, the longer texts in a
    value that is JSON, and each of their lines. Each is looked for as python's `repr` and JSON write it, because a
    `KeyError` shows its key so, as a URL quotes it, and in base64."""
    values = {text for secret in secrets for text in (secret, *_inner_texts(secret))}
    lines = {line for value in values for line in (value, *value.splitlines())}
    forms = {form for line in lines for form in _written_forms(line)}
    return sorted((form for form in forms if len(form) >= SHORTEST), key=lambda form: (-len(form), form))


def _written_forms(text: str) -> tuple[str, ...]:
    data = text.encode(errors="surrogateescape")
    if len(text) < SHORTEST:
        return (text,)
    # Without the padding, which is not always written.
    encoded = [encode(data).decode().rstrip("=") for encode in (base64.b64encode, base64.urlsafe_b64encode)]
    quoted = [quote(data, safe=""), quote(data), quote_plus(data)]
    return (text, repr(text)[1:-1], json.dumps(text)[1:-1], *quoted, *encoded)


def _inner_texts(secret: str) -> list[str]:
    """Return the texts inside a secret that is a JSON object or list, such as a service account's key, from
    `SHORTEST_INNER` characters on."""
    if not secret.lstrip().startswith(("{", "[")):
        return []
    try:
        pending, texts = [json.loads(secret)], []
    except (ValueError, RecursionError):
        return []
    while pending:
        value = pending.pop()
        if isinstance(value, str) and len(value) >= SHORTEST_INNER:
            texts.append(value)
        elif isinstance(value, dict | list):
            pending += value.values() if isinstance(value, dict) else value
    return texts


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
