"""Names that say that their value is a secret, and values that are no secrets all the same."""

import re

_STRONG = re.compile(
    r"(?:(?:^|[_-])pass|password|passwd|passphrase|passcode|(?<!^)pwd|contrasena|contraseña"
    r"|(?:client|app|shared|api|consumer|webhook)[_-]?secret|secret[_-]?(?:access[_-]?)?(?:key|string)"
    r"|(?:api|auth|access|priv|private|service|account|client|encryption|signing|master|db|database|license)[_-]?key)s?$",
    re.IGNORECASE,
)
"""Names whose value is a secret whatever it looks like: detect-secrets' list (`keyword.py`, DENYLIST) as the end of a
name, and more of the kind."""

_WEAK = re.compile(r"(?:secret|(?<!http)(?<!http_)token|credential)s?$", re.IGNORECASE)
"""Names whose value may as well be the name of a secret, or a token of a language."""

_NO_SECRETS = re.compile(
    r"(?:client|creation|idempotency|request|caller|next|page|continuation|pad|eos|bos|unk|mask|sep|cls)_?tokens?$",
    re.IGNORECASE,
)
"""Names ending in "token" that are no credentials: idempotency tokens, page tokens, tokens of a language."""

_REFERENCES = (
    "arn:", "projects/", "ssm:", "secretsmanager:", "secretmanager:", "gcp:", "aws:", "vault:", "op://", "env:",
    "file:", "awskms:", "gcpkms:", "azurekeyvault:", "hashivault:", "alias/", "sha256:", "https://", "http://",
    "s3://", "gs://", "/", "./", "~/", "%",
)  # fmt: skip
"""Prefixes of values that name where a secret is stored and are not secret themselves."""

_WORDS = frozenset(
    {
        "true", "false", "yes", "no", "on", "off", "none", "null", "nil", "required", "optional", "disabled",
        "enabled", "default", "prompt", "auto", "always", "never", "test", "testing", "dummy", "mock", "fake",
        "example", "placeholder", "redacted", "unset", "empty", "changeme", "change-me", "todo", "tbd",
    }
)  # fmt: skip
"""Values that configure, or that stand for none."""

_PLACEHOLDER = re.compile(
    r"<[^>]*>|\$\{|\$\(|\{\{|\}\}|%s|%\(|\*{3}|\.{3}|…|x{4,}|X{4,}|\[secret\]|\b(?i:your)[-_ ]"
    r"|^\$\w+$|^\{\w*\}$|^\[\w+\]$"
)
_NAMES = re.compile(r"[A-Za-z]+\d{0,2}(?:[-_./:@][A-Za-z]+\d{0,2}|[-_./:@]\d{1,4})+|[A-Za-z]+")
"""Words with signs between them, as resources and models are named."""


def is_placeholder(value: str) -> bool:
    """Return whether a value is only a placeholder for a credential: a variable, `<token>`, `***`."""
    return value.lower() in _WORDS or _PLACEHOLDER.search(value) is not None


def is_name(value: str) -> bool:
    """Return whether a value is words with signs between them, as resources and models are named."""
    return _NAMES.fullmatch(value) is not None


def is_reference(value: str) -> bool:
    """Return whether a value says where a secret is kept."""
    return value.startswith(_REFERENCES)


def is_strong(name: str) -> bool:
    """Return whether a name says by itself that its value is a secret."""
    return _STRONG.search(_words(name)) is not None


def is_named_secret(name: str, value: str) -> bool:
    """Return whether a value is a secret by its name."""
    text = value.strip()
    if len(text) < 3 or is_placeholder(text) or is_reference(text):
        return False
    if name.lower() == "pass" and "-" in text and is_name(text):
        return False  # a label, such as `season-pass-2026`
    if is_strong(name):
        return not _is_number(text) or "pass" in name.lower()
    if not _WEAK.search(_words(name)) or _NO_SECRETS.search(_words(name)) or _is_number(text) or " " in text:
        return False
    return len(text) >= 6 and any(letter.isdigit() for letter in text) and not is_name(text)


def is_named_literal(name: str, value: str) -> bool:
    """Return whether a text in a program is a secret by the name of its variable."""
    digit = any(letter.isdigit() for letter in value)
    return digit and is_strong(name) and is_named_secret(name, value) and not is_name(value)


def _words(name: str) -> str:
    """Return a name with its words apart: `dbPass` ends in a word that `compass` does not have."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+]?[0-9]+(?:\.[0-9]+)?[smhd]?", text) is not None
