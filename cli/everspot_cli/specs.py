"""Reading a job's YAML file: every bad field named at once, with what would be allowed."""

import difflib
from pathlib import Path
from typing import Any

from everspot_core.job import JobSpec
from everspot_core.problems import cut
from everspot_core.recipes import RECIPES, parameters_of
from pydantic import BaseModel, ValidationError

from everspot_cli.errors import CliError
from everspot_cli.overrides import Overrides
from everspot_cli.yamlfile import read_yaml

SHOWN = 20  # faults that are told one by one; the rest are counted
_VALUE = 80  # characters of a wrong value that are shown


def read_spec(path: Path, overrides: Overrides | None = None) -> JobSpec:
    """The job that a file describes, with what the command line says instead; `code` is made absolute, relative to
    the file.

    Raises:
        CliError: if there is no such file, or if it is not a valid job; then with every fault.
    """
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise CliError(f"{path} must be a mapping of fields, such as `name: my-job`")
    return _validated(path, overrides.over(data) if overrides is not None else data)


def changed(spec: JobSpec, what: str, overrides: Overrides) -> JobSpec:
    """A job that was submitted once, with other values in some fields. `what`: its name, for errors.

    Raises:
        CliError: if the result is no valid job, or if it names other code, requirements or datasets: those are read
            where a job is submitted, and kept with it.
    """
    read = [path for path in overrides.fields if path.partition(".")[0] in ("code", "requirements", "datasets")]
    if read:
        raise CliError(f"{', '.join(read)} cannot be changed: submit the job's file instead")
    data = overrides.over(spec.model_dump(mode="json", exclude_unset=True))
    try:
        return JobSpec.model_validate(data)
    except ValidationError as error:
        problems = _by_field([dict(fault) for fault in error.errors(include_url=False)])[:SHOWN]
        raise CliError(f"{what} with these changes is no valid job", problems=problems) from None


def _validated(path: Path, data: dict[str, Any]) -> JobSpec:
    problems: list[dict[str, str]] = []
    spec: JobSpec | None = None
    try:
        spec = JobSpec.model_validate(data)
    except ValidationError as error:
        problems = _by_field([dict(fault) for fault in error.errors(include_url=False)])
    recipe = data.get("recipe")
    if isinstance(recipe, str) and parameters_of(recipe) is None:
        known = ", ".join(RECIPES)
        problems.append({"field": "recipe", "problem": f"{cut(repr(recipe), _VALUE)} is no recipe; allowed: {known}"})
    folder = _folder(path, spec, problems) if spec is not None and spec.code is not None else None
    if spec is not None and spec.requirements is not None and not (path.parent / spec.requirements).is_file():
        problems.append({"field": "requirements", "problem": f"there is no file {cut(spec.requirements, _VALUE)}"})
    if problems or spec is None:
        count = f"{len(problems)} fields are" if len(problems) > 1 else "a field is"
        left = len(problems) - SHOWN
        more = [{"field": f"(and {left} more)", "problem": "not listed; mend these first"}] if left > 0 else []
        problems = [*problems[:SHOWN], *more]
        raise CliError(f"{path}: {count} wrong", hint="docs/reference-spec.md lists every field", problems=problems)
    changes = {"code": str(folder)} if folder is not None else {}
    if spec.requirements is not None:
        changes["requirements"] = str((path.parent / spec.requirements).resolve())
    return spec.model_copy(update=changes)


def _folder(path: Path, spec: JobSpec, problems: list[dict[str, str]]) -> Path:
    """The folder of the code, absolute; problems are added if it is none, or does not hold the script."""
    folder = (path.parent / str(spec.code)).resolve()
    try:
        is_folder = folder.is_dir()
    except OSError as error:  # a name longer than the system takes
        problems.append({"field": "code", "problem": f"cannot be read: {error.strerror}"})
        return folder
    if not is_folder:
        problems.append({"field": "code", "problem": f"{folder} is not a folder"})
        return folder
    script = spec.entrypoint[0] if spec.entrypoint else ""
    try:
        found = (folder / script).resolve()
        missing, outside = not found.is_file(), not found.is_relative_to(folder)
    except OSError as error:
        problems.append({"field": "entrypoint", "problem": f"cannot be read: {error.strerror}"})
        return folder
    if missing:
        problems.append({"field": "entrypoint", "problem": f"there is no {cut(script, _VALUE)} in {folder}"})
    elif outside:
        problems.append({"field": "entrypoint", "problem": f"{cut(script, _VALUE)} leads out of {folder}"})
    return folder


def _by_field(faults: list[dict[str, Any]]) -> list[dict[str, str]]:
    """One line for each field: what may be a duration or a moment fails as both. Those that are only counted are not
    put into words."""
    fields: dict[str, list[dict[str, Any]]] = {}
    for fault in faults:
        fields.setdefault(".".join(_where(fault)) or "(the whole)", []).append(fault)
    told = []
    for number, (field, found) in enumerate(fields.items()):
        words = _joined([_words(fault) for fault in found[:SHOWN]]) if number < SHOWN else ""
        told.append({"field": cut(_printable(field), _VALUE), "problem": words})
    return told


def _joined(words: list[str]) -> str:
    # A duration that is out of bounds is no moment either, and nobody meant it to be one.
    meant = [said for said in words if said.startswith("a duration lies")]
    return "; and ".join(meant or words)


def _where(fault: dict[str, Any]) -> list[str]:
    # The members of a union (deadline) put their type's name into the location: it says nothing to the author.
    where = [str(part) for part in fault["loc"] if not str(part).startswith("function-")]
    return [part for part in where if part not in ("timedelta", "datetime")]


def _words(fault: dict[str, Any]) -> str:
    where = _where(fault)
    said = str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        known = _fields(where[:-1])
        near = difflib.get_close_matches(where[-1], known, n=1)
        said = f"unknown field{f', did you mean {near[0]}?' if near else ''}; allowed: {', '.join(known)}"
    elif fault["type"] == "string_pattern_mismatch" and where == ["name"]:
        said = "1 to 40 small letters, digits and hyphens, with neither end a hyphen"
    elif fault["type"] in ("enum", "literal_error"):
        said = f"must be {fault['ctx']['expected']}, not {cut(repr(fault['input']), _VALUE)}"
    elif fault["type"] == "missing":
        said = "is missing"
    elif not said.startswith(repr(fault["input"])) and isinstance(fault["input"], str | int | float | bool):
        said = f"{said[0].lower()}{said[1:]}, not {cut(repr(fault['input']), _VALUE)}"
    return cut(_printable(said), 10 * _VALUE)


def _fields(path: list[str]) -> list[str]:
    model: type[BaseModel] = JobSpec
    for part in path:
        inner = model.model_fields[part].annotation if part in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)


def _printable(text: str) -> str:
    """Without what a terminal would obey: field names are the author's own words."""
    return "".join(char if char.isprintable() else "�" for char in text)
