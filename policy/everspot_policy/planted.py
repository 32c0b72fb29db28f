"""Texts that look like credentials. What was found is named by its kind, and never shown."""

import base64
import re
import zlib
from collections.abc import Iterator
from itertools import islice

LEAST = "a password"

_QUOTED = r"(?:\"(?![$<{`])[^\"\n]{1,100}\"|'(?![$<{`])[^'\n]{1,100}')"
"""A text in quotes that stands there literally."""

KINDS: dict[str, re.Pattern[str]] = {
    "an AWS access key": re.compile(r"(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z2-7]{16}(?![A-Z0-9])"),
    "an AWS secret key": re.compile(
        r"(?i)aws_?secret_?(?:access_?)?key['\"]?\s*[:=]\s*['\"]?[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])"
    ),
    "a private key": re.compile(r"-----BEGIN (?:[A-Z]{2,12} ){0,2}PRIVATE KEY-----"),
    "a Google API key": re.compile(r"(?<![A-Za-z0-9_-])AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    "a GitHub token": re.compile(r"(?<![A-Za-z0-9_])(?:gh[opsur]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{40,100})"),
    "a Slack token": re.compile(r"(?<![A-Za-z0-9])xox[abprs]-[A-Za-z0-9-]{10,100}"),
    "a GitLab token": re.compile(r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,60}"),
    "an API key of a model": re.compile(r"(?<![A-Za-z0-9])sk-(?:ant-|proj-)?[A-Za-z0-9_-]{20,200}"),
    "a Hugging Face token": re.compile(
        r"(?<![A-Za-z0-9_])hf_[A-Za-z0-9]{34}(?![A-Za-z0-9])"
        r"|(?:huggingface-cli|\bhf auth) login(?: +--?[a-z][^\s]{0,60}){0,5} +--token(?: +|=)['\"]?[A-Za-z0-9_-]{8,100}"
    ),
    "a Weights & Biases API key": re.compile(
        r"\bwandb login(?: +--?[a-z][^\s]{0,100}){0,5} +['\"]?(?:local-)?[0-9a-f]{40}(?![0-9a-f])"
    ),
    "a database's password": re.compile(
        r"(?<![A-Za-z0-9_])(?:PGPASSWORD|MYSQL_PWD)(?:"
        rf"=(?:{_QUOTED}|(?![$<{{`\"'])(?=\S*[A-Za-z0-9])\S)"
        rf"|['\"]?\s*:\s*(?:{_QUOTED}|(?![$<{{`\"'])(?=\S*\d)\S))"
    ),
    LEAST: re.compile(
        r"(?im)(?:^|[\s;&_\"'{,-])(?:password|passwd|secret|token|api_?key)['\"]?\s*[:=]\s*"
        r"(?:\"(?![$<{])[^\"\s]{8,100}\"|'(?![$<{])[^'\s]{8,100}'|(?![$<{\"'(\[])(?=[^\s,;]*\d)[^\s,;\"'}]{8,100})"
    ),
}
"""What is looked for. A password counts if it stands there literally: `$TOKEN`, `${TOKEN}` and `<token>` are none."""

LONGEST = 1 << 20
"""Characters that are looked at. Clouds take far less (16 KiB of user data, 256 KiB of a metadata value)."""


_PACKED = re.compile(r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{40,}\s+)*[A-Za-z0-9+/]{20,}={0,2}")
_LAYERS, _PIECES = 2, 100
"""How deep, and how many pieces of a text, are unpacked: a file of a cloud-config is one layer."""


def secrets_in(text: str) -> list[str]:
    """The kinds of credentials that a text seems to hold, also packed as base64 within it, as a cloud-config has files
    (`encoding: b64` and `gz+b64`). A password is what no other kind tells more of."""
    layers = list(_layers(text[:LONGEST], _LAYERS))
    found = [kind for kind, pattern in KINDS.items() if any(pattern.search(each) for each in layers)]
    return found if found == [LEAST] else [kind for kind in found if kind != LEAST]


def _layers(text: str, deep: int) -> Iterator[str]:
    """A text, and the texts that are packed in it."""
    yield text
    for piece in islice(_PACKED.finditer(text), _PIECES if deep else 0):
        try:
            inner = unpacked(piece[0]).decode()
        except (ValueError, zlib.error):
            continue
        yield from _layers(inner, deep - 1)


def unpacked(text: str) -> bytes:
    """What a text is the base64 of, also in lines, and without compression where there is any.

    Raises:
        ValueError: if it is no base64.
        zlib.error: if what is compressed cannot be read.
    """
    found = base64.b64decode("".join(text.split()), validate=True)
    return zlib.decompressobj(wbits=31).decompress(found, LONGEST) if found[:2] == b"\x1f\x8b" else found
