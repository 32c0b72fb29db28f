"""Reading a job's YAML file: every bad field named at once, with what would be allowed."""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from everspot_core.job import JobSpec
from pydantic import BaseModel, ValidationError

from everspot_cli.errors import CliError, Exit

RECIPES = ("image-classification",)


def read_spec(path: Path) -> JobSpec:
    """The job that a file describes; `code` is made absolute, relative to the file.

    Raises:
        CliError: if there is no such file, or if it is not a valid job; then with every fault.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CliError(f"there is no file {path}", Exit.NOT_FOUND) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path} cannot be read: {error}") from None
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise CliError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise CliError(f"{path} must be a mapping of fields, such as `name: my-job`")
    return _validated(path, data)


def _validated(path: Path, data: dict[str, Any]) -> JobSpec:
    problems: list[dict[str, str]] = []
    spec: JobSpec | None = None
    try:
        spec = JobSpec.model_validate(data)
    except ValidationError as error:
        problems = _by_field(_problem(dict(fault)) for fault in error.errors())
    recipe = data.get("recipe")
    if isinstance(recipe, str) and recipe.replace("_", "-") not in RECIPES:
        problems.append({"field": "recipe", "problem": f"{recipe!r} is no recipe; allowed: {', '.join(RECIPES)}"})
    code = data.get("code")
    folder = (path.parent / code).resolve() if isinstance(code, str) else None
    if folder is not None and not folder.is_dir():
        problems.append({"field": "code", "problem": f"{folder} is not a folder"})
    elif folder is not None and spec is not None and spec.entrypoint and not (folder / spec.entrypoint[0]).is_file():
        problems.append({"field": "entrypoint", "problem": f"there is no {spec.entrypoint[0]} in {folder}"})
    if problems or spec is None:
        count = f"{len(problems)} fields are" if len(problems) > 1 else "a field is"
        raise CliError(f"{path}: {count} wrong", hint="docs/reference-spec.md lists every field", problems=problems)
    return spec if folder is None else spec.model_copy(update={"code": str(folder)})


def _by_field(problems: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """One line for each field: what may be a duration or a moment fails as both."""
    said: dict[str, list[str]] = {}
    for problem in problems:
        said.setdefault(problem["field"], []).append(problem["problem"])
    return [{"field": field, "problem": "; and ".join(words)} for field, words in said.items()]


def _problem(fault: dict[str, Any]) -> dict[str, str]:
    # The members of a union (deadline) put their type's name into the location: it says nothing to the author.
    where = [str(part) for part in fault["loc"] if not str(part).startswith("function-")]
    where = [part for part in where if part not in ("timedelta", "datetime")]
    said = str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        known = _fields(where[:-1])
        near = difflib.get_close_matches(where[-1], known, n=1)
        said = f"unknown field{f', did you mean {near[0]}?' if near else ''}; allowed: {', '.join(known)}"
    elif fault["type"] == "string_pattern_mismatch" and where == ["name"]:
        said = "1 to 40 small letters, digits and hyphens, with neither end a hyphen"
    elif fault["type"] in ("enum", "literal_error"):
        said = f"must be {fault['ctx']['expected']}, not {fault['input']!r}"
    elif fault["type"] == "missing":
        said = "is missing"
    elif not said.startswith(repr(fault["input"])) and isinstance(fault["input"], str | int | float | bool):
        said = f"{said[0].lower()}{said[1:]}, not {fault['input']!r}"
    return {"field": ".".join(where) or "(the whole)", "problem": said}


def _fields(path: list[str]) -> list[str]:
    model: type[BaseModel] = JobSpec
    for part in path:
        inner = model.model_fields[part].annotation if part in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)
