"""The part of a secret that a job gets: its text, or one value of a JSON object."""

import json

from everspot_clouds.base import CloudError, Trouble


def binary() -> CloudError:
    """Return the refusal of a secret that is no text."""
    return CloudError("it is binary, and only text can be a variable", Trouble.REQUEST)


def chosen(text: str, key: str) -> str:
    """Return the value of a key of a secret, which is JSON if it is not a text; the whole secret if `key` is empty.

    Raises:
        CloudError: if the secret has no such key. The message contains no value.
    """
    if not key:
        return text
    try:
        value = json.loads(text)[key]
    except (ValueError, KeyError, TypeError):
        raise CloudError(f"it is no JSON object with the key {key}", Trouble.REQUEST) from None
    return value if isinstance(value, str) else json.dumps(value)
