"""How the `everspot` that runs was installed, as a line of requirements that installs the same again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distributions, version
from typing import Any

PACKAGE = "everspot"


@dataclass(frozen=True)
class Requirement:
    """A line of requirements. `local`: it names a place on this machine, from which no other machine can install."""

    line: str
    local: bool


def own_requirement(extras: str) -> Requirement:
    """Return the requirement that installs the running `everspot`, with some extras, such as `cli,review`."""
    # Beside the installed one there may be what a build has left in the checkout, which says nothing of its origin.
    notes = (distribution.read_text("direct_url.json") for distribution in distributions(name=PACKAGE))
    origin = next((json.loads(note) for note in notes if note), None)
    return requirement(extras, version(PACKAGE), origin)


def requirement(extras: str, version: str, origin: Mapping[str, Any] | None) -> Requirement:
    """Return the requirement that installs a version again. `origin`: the installer's note on a URL (direct_url.json,
    PEP 610), which has no password; None for a package from an index."""
    name = f"{PACKAGE}[{extras}]"
    if origin is None:
        return Requirement(f"{name}=={version}", local=False)
    url = str(origin["url"])
    local = url.startswith("file:")
    control = origin.get("vcs_info")
    if control is not None:
        url = f"{control['vcs']}+{url}@{control['commit_id']}"
    if folder := origin.get("subdirectory"):
        url = f"{url}#subdirectory={folder}"
    return Requirement(f"{name} @ {url}", local=local)
