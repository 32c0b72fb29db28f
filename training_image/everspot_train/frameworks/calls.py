"""Gives each call of an integration the checkpoints that the same call has left in earlier attempts.

A program may make several calls, such as one for each of its stages, and an attempt may skip some of them because
their results exist. So the place of each call in the program is stored with its checkpoints. Calls from the same place,
as in a loop, are told apart by their order alone, unless they have names.
"""

import linecache
import logging
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_MOST_FRAMES = 50
_LIBRARIES = ("site-packages", "dist-packages")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PastCall:
    """A call that an earlier attempt has made.

    Attributes:
        site: its place in the program (`read_call_site`); empty in checkpoints of earlier versions.
        is_finished: whether it came to its end.
    """

    site: tuple[str, ...]
    is_finished: bool


class CallLabels:
    """The labels of the calls that this process makes: their names, or numbers from 1."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()
        self._names: set[str] = set()
        self._sites: set[tuple[str, ...]] = set()
        self._is_warned = False

    def assign(self, name: str | None, site: tuple[str, ...], past: Mapping[int, PastCall]) -> str:
        """Return the label of a call.

        Args:
            name: the name that the program has chosen.
            site: its place in the program.
            past: the unnamed calls of earlier attempts, by number.

        Raises:
            ValueError: if the name is not allowed, or another call of the program has it.
        """
        if name is None:
            number = self._choose_number(site, past)
            self._numbers.add(number)
            self._warn_of_loop(site)
            return str(number)
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"name={name!r}: a letter, then up to 63 letters, digits and signs of '._-'")
        if name in self._names:
            raise ValueError(f"name={name!r}: another call of this program has it; each call needs its own")
        self._names.add(name)
        return name

    def _choose_number(self, site: tuple[str, ...], past: Mapping[int, PastCall]) -> int:
        for number in sorted(past.keys() - self._numbers):
            if site and past[number].site == site:
                return number
        number = len(self._numbers) + 1
        call = past.get(number)
        is_another = call is not None and call.is_finished and is_in_program(call.site)
        if number in self._numbers or is_another:
            number = max(self._numbers | past.keys()) + 1
            _log.info("this call is none of earlier attempts, and trains from its beginning")
        return number

    def _warn_of_loop(self, site: tuple[str, ...]) -> None:
        if site in self._sites and site and not self._is_warned:
            self._is_warned = True
            _log.warning(
                "%s is called again: give each call a name of its own, as name=f'fold-{k}'. Without names an attempt"
                " that skips some of the calls resumes the others from wrong checkpoints",
                site[0],
            )
        self._sites.add(site)


def read_call_site() -> tuple[str, ...]:
    """Return the lines of the program that lead to the caller's caller, the innermost first. Lines of installed
    libraries are left out."""
    frames = list[FrameType]()
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and len(frames) < _MOST_FRAMES:
        frames.append(frame)
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            break
        frame = frame.f_back
    root = _program_folder()
    return tuple(
        _describe_line(frame.f_code.co_filename, frame.f_lineno, root)
        for frame in frames
        if not frame.f_code.co_filename.startswith("<")
        and not any(part in _LIBRARIES for part in Path(frame.f_code.co_filename).parts)
    )


def is_in_program(site: tuple[str, ...]) -> bool:
    """Return whether all lines of a call of an earlier attempt are where they were: the program has not been edited
    there."""
    root = _program_folder()
    for entry in site:
        path, number, text = entry.split(":", 2)
        if _line(root / path, int(number)) != text.strip():
            return False
    return bool(site)


def _program_folder() -> Path:
    program = getattr(sys.modules["__main__"], "__file__", None)
    return Path(program).resolve().parent if program else Path.cwd()


def _describe_line(path: str, number: int, root: Path) -> str:
    return f"{os.path.relpath(Path(path).resolve(), root)}:{number}: {_line(Path(path), number)}"


def _line(path: Path, number: int) -> str:
    return linecache.getline(str(path), number).strip()
