"""Describes the missing packages of an extra, in one sentence that names the extra."""

import re
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, requires, version

DISTRIBUTION = "everspot"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check(program: str, extra: str) -> None:
    """Check that the packages of an extra are installed, before any of them is imported.

    Raises:
        SystemExit: if one is missing, with the sentence that says which extra to install.
    """
    try:
        missing = lacking(requires(DISTRIBUTION) or (), extra, _installed)
    except PackageNotFoundError:  # run from a folder that was never installed
        return
    if missing:
        raise SystemExit(sentence(program, extra, missing))


def lacking(requirements: Iterable[str], extra: str, installed: Callable[[str], bool]) -> list[str]:
    """Return the packages that the extra asks for and that are not `installed`, in the order of the requirements, which
    are those of a distribution's metadata (`rich>=14; extra == "cli"`)."""
    extra_marker = re.compile(rf"""\bextra\s*==\s*['"]{re.escape(extra)}['"]""")
    names = [line.partition(";") for line in requirements]
    required = [
        match[0] for text, _, marker in names if extra_marker.search(marker) and (match := _NAME.match(text.strip()))
    ]
    return [name for name in required if not installed(name)]


def sentence(program: str, extra: str, missing: list[str]) -> str:
    """Return the sentence about missing packages."""
    verb = "is" if len(missing) == 1 else "are"
    return f"{program} needs {', '.join(missing)}, which {verb} not installed: pip install '{DISTRIBUTION}[{extra}]'"


def _installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
