"""Checks of the files that a job's file names: the folder of its code, the script in it, the lock file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from everspot_core.validation.problems import Problem, cut

_VALUE = 80  # characters of a wrong value that are shown


def file_problems(folder: Path, written: Mapping[str, Any]) -> list[Problem]:
    """Return all problems of these files. `folder`: of the job's file; `written`: the fields, as written, that are
    valid in themselves."""
    problems: list[Problem] = []
    code, entrypoint, requirements = (written.get(name) for name in ("code", "entrypoint", "requirements"))
    if isinstance(code, str):
        script = entrypoint[0] if isinstance(entrypoint, list) and entrypoint else None
        problems += _code(folder / code, script)
    if isinstance(requirements, str):
        problems += _requirements(folder / requirements, requirements)
    return problems


def _code(path: Path, script: str | None) -> list[Problem]:
    """Return problems of the code folder and of the script in it."""
    try:
        folder = path.resolve()
        is_folder = folder.is_dir()
    except OSError as error:  # a name longer than the system takes
        return [Problem("code", f"cannot be read: {error.strerror}")]
    if not is_folder:
        return [Problem("code", f"{folder} is not a folder")]
    if script is None:
        return []
    try:
        script_path = (folder / script).resolve()
        missing, outside = not script_path.is_file(), not script_path.is_relative_to(folder)
    except OSError as error:
        return [Problem("entrypoint", f"cannot be read: {error.strerror}")]
    if missing:
        return [Problem("entrypoint", f"there is no {cut(script, _VALUE)} in {folder}")]
    return [Problem("entrypoint", f"{cut(script, _VALUE)} leads out of {folder}")] if outside else []


def _requirements(path: Path, name: str) -> list[Problem]:
    try:
        exists = path.is_file()
    except OSError as error:
        return [Problem("requirements", f"cannot be read: {error.strerror}")]
    return [] if exists else [Problem("requirements", f"there is no file {cut(name, _VALUE)}")]
