"""Values of properties, as the engine's event log has them: found by their path, compared, and shown to people."""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from everspot_clouds.plain_credentials import credentials_in, redact
from everspot_core.cluster.declared import SECRET, secret, unknown

LONGEST = 300
"""Characters of a value that are shown. Longer values are cut, and their length is added."""

NOT_KNOWN = "(known after apply)"


class Missing:
    """The absence of a value, which differs from null."""


MISSING: Final = Missing()

_STEP = re.compile(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.\[\]]+)')
_BASE64 = re.compile(r"[A-Za-z0-9+/]{24,}={0,2}")

_CREDENTIALS = re.compile(
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{30,}|\bglpat-[\w-]{16,}|\bxox[abprs]-[\w-]{10,}|\bsk-[\w-]{20,}"
    r"|\bAIza[\w-]{35}|\bpul-[0-9a-f]{40}|\bhf_[A-Za-z0-9]{30,}|(?<=[Bb]earer )[\w.~+/-]{16,}=*"
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<=://)[^/\s:@\"]+:[^/\s@\"]+(?=@)",
    re.DOTALL,
)
_NAME = r"(?:password|passwd|passphrase|secret|(?<!http)token|api[_-]?key|access[_-]?key|private[_-]?key|credential)s?"
_NAMED = re.compile(
    rf"({_NAME}[\"']?\s*[:=]\s*|--{_NAME}\s+)(?:(\\?[\"'])(?:(?!\2).){{4,}}\2|\\?[\"']?[^\s\"'\\,;}}&]{{6,}})",
    re.IGNORECASE,
)
_SECRET_KEY = re.compile(rf"{_NAME}(?:[_-]?string)?$", re.IGNORECASE)
_SHORTEST = 6
"""Characters of the shortest credential that is redacted by its value: shorter ones are parts of words."""
_REFERENCES = ("arn:", "projects/", "${")
"""Prefixes of texts that name where a secret is stored and are not secret themselves."""


def masked(text: str) -> str:
    """Return the text without anything that looks like a credential: a second net under the engine's own marks, for
    credentials that somebody wrote into a setting or a script without calling them a secret."""
    text = _NAMED.sub(rf"\1\2{SECRET}\2", _CREDENTIALS.sub(SECRET, text))
    return redact(
        text, [credential.value for credential in credentials_in(text) if len(credential.value) >= _SHORTEST], SECRET
    )


def confidential(value: Any, path: str) -> bool:
    """Return whether the name of the value at a path says that it is a secret: its own key, or the name beside a
    `value`, as lists of variables have it."""
    keys = split(path)
    names = [key for key in keys if isinstance(key, str)]
    if names and _SECRET_KEY.search(names[-1]):
        return True
    return bool(keys) and str(keys[-1]).lower() == "value" and _of_a_secret(_walked(value, keys[:-1]))


def _of_a_secret(pair: Any) -> bool:
    """Return whether an object is a name with a value, and the name says that it is a secret."""
    if not isinstance(pair, Mapping):
        return False
    names = [text for key, text in pair.items() if str(key).lower() in ("name", "key")]
    return any(isinstance(name, str) and _SECRET_KEY.search(name) for name in names)


def split(path: str) -> tuple[str | int, ...]:
    """Return the keys and indexes of a path, for example `disks[0].labels["a.b"]`."""
    keys: list[str | int] = []
    for quoted, index, key in _STEP.findall(path):
        keys.append(int(index) if index else key or re.sub(r"\\(.)", r"\1", quoted))
    return tuple(keys)


def at(value: Any, path: str) -> Any:
    """Return the value at a path, or MISSING. Everything within a secret is that secret."""
    return _walked(value, split(path))


def _walked(value: Any, keys: tuple[str | int, ...]) -> Any:
    for key in keys:
        if secret(value):
            return value
        if isinstance(value, Mapping) and str(key) in value:
            value = value[str(key)]
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return MISSING
    return value


def opened(text: str) -> str:
    """Return a text that was packed as base64, as user data is, or the text itself."""
    if not _BASE64.fullmatch(text) or len(text) % 4:
        return text
    try:
        decoded = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return text
    return decoded if decoded.isprintable() or all(c.isprintable() or c in "\r\n\t" for c in decoded) else text


def structure(value: Any) -> Any:
    """Return the object or list that a text is the JSON of, or the value itself."""
    if isinstance(value, str) and not unknown(value):
        text = opened(value)
        if text.lstrip()[:1] in ("{", "["):
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                return text
        return text
    return value


def differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each place where two values differ, with both sides, or MISSING."""
    if secret(before) or secret(after):
        if not (secret(before) and secret(after)):
            yield path, before, after
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}, key=str):
            yield from differences(before.get(key, MISSING), after.get(key, MISSING), _below(path, str(key)))
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            old_value = before[index] if index < len(before) else MISSING
            new_value = after[index] if index < len(after) else MISSING
            yield from differences(old_value, new_value, f"{path}[{index}]")
    elif before is not after and (before != after or type(before) is not type(after)):
        yield path, before, after


def shown(value: Any) -> str | None:
    """Return a value for people: JSON in one line, cut where it is long. None if there is no value."""
    if value is MISSING:
        return None
    if secret(value):
        return SECRET
    if unknown(value):
        return NOT_KNOWN
    text = masked(json.dumps(_without_marks(value), ensure_ascii=False, default=str))
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 60]}… ({len(text)} characters)"


def readable_sides(before: Any, after: Any, *, hide: bool = False) -> tuple[str | None, str | None]:
    """Return both sides of a difference for people. `hide`: whether their name says that they are secret. A text that
    stops being a secret, or becomes one, may be the secret still."""
    sides = shown(before), shown(after)
    if SECRET in sides or (hide and any(_hides(value) for value in (before, after))):
        return sides[0] and SECRET, sides[1] and SECRET
    return sides


def _hides(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and not unknown(value) and not value.startswith(_REFERENCES)


def _without_marks(value: Any) -> Any:
    if secret(value):
        return SECRET
    if unknown(value):
        return NOT_KNOWN
    if isinstance(value, Mapping):
        pair = _of_a_secret(value)
        return {str(key): _under(str(key), item, pair=pair) for key, item in value.items()}
    return [_without_marks(item) for item in value] if isinstance(value, list) else value


def _under(key: str, value: Any, *, pair: bool) -> Any:
    if _SECRET_KEY.search(key) is None and not (pair and key.lower() == "value"):
        return _without_marks(value)
    if isinstance(value, list):
        return [_under(key, each, pair=pair) for each in value]
    return SECRET if _hides(value) else _without_marks(value)


def _below(path: str, key: str) -> str:
    if re.fullmatch(r"[\w:/-]+", key):
        return f"{path}.{key}" if path else key
    return f"{path}[{json.dumps(key)}]"
