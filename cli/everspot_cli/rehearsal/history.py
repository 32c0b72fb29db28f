"""The code that was rehearsed on this machine: `$XDG_STATE_HOME/everspot/rehearsals.json`, by the code's digest."""

import contextlib
import json
import secrets
from datetime import datetime
from pathlib import Path
from typing import Any

from everspot_cli.userconfig import base

_MOST = 500
"""Digests that are remembered; the oldest go first."""


def path() -> Path:
    """Return the path of the file, whether it exists or not."""
    return base("XDG_STATE_HOME", ".local/state") / "everspot" / "rehearsals.json"


def was_rehearsed(code_digest: str) -> bool:
    """Return whether this code was rehearsed here, and was exact. A file that cannot be read counts as empty."""
    return code_digest in _load()


def remember(code_digest: str, now: datetime, steps: int | None) -> None:
    """Remember that this code was exact. A folder that cannot be written is no error: `submit` then suggests again."""
    entries = _load() | {code_digest: {"at": now.isoformat(), "steps": steps}}
    newest = dict(sorted(entries.items(), key=lambda item: str(item[1].get("at")))[-_MOST:])
    temporary = path().with_name(f".rehearsals-{secrets.token_hex(4)}")
    with contextlib.suppress(OSError):
        path().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.write_text(json.dumps(newest, indent=1), encoding="utf-8")
        temporary.replace(path())


def _load() -> dict[str, dict[str, Any]]:
    try:
        entries = json.loads(path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in entries.items() if isinstance(v, dict)} if isinstance(entries, dict) else {}
