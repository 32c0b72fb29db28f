"""Hints about a local cloud in this folder that the shell is not connected to, because its variables are not set."""

import json
import os
from pathlib import Path

FOLDER = "EVERSPOT_LOCAL_DIR"
_STATE = Path("state.json")
_HERE = Path(".everspot/local")  # where `everspot-local up` keeps it


def local_cloud() -> str:
    """Return a hint about the local cloud of this folder or of one above. Empty without one, or if the shell uses
    it."""
    folder = _folder()
    if folder is None:
        return ""
    try:
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        endpoint, process = str(state["endpoint"]), int(state["pid"])
    except (OSError, ValueError, TypeError, KeyError):
        endpoint, process = "", 0
    if process <= 0 or not _runs(process):
        return f"the local cloud of {folder} does not run, and its clusters are gone with it: everspot-local up"
    if endpoint in os.environ.values():  # whichever cloud's variable it is
        return ""
    return f'a local cloud runs in {folder}; this shell talks to it after: eval "$(everspot-local env)"'


def with_local_cloud(hint: str) -> str:
    """Return the hint about the local cloud, if it exists, and then this hint. A user who has started a local cloud
    probably means that one."""
    return "; or ".join(part for part in (local_cloud(), hint) if part)


def _folder() -> Path | None:
    configured = os.environ.get(FOLDER)
    try:
        here = Path.cwd()
    except OSError:  # the folder has been removed
        return None
    places = [Path(configured)] if configured else [folder / _HERE for folder in (here, *here.parents)]
    return next((place for place in places if place.is_dir()), None)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's, or no number of a process
        return True
    return True
