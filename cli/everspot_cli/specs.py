"""Reads a job's YAML file and the overrides of the command line. One error names every bad field and what is
allowed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everspot_clouds.registry import job_rules
from everspot_core.jobs.job import Budget, JobSpec
from everspot_core.jobs.job_rules import move_faults, program_faults
from everspot_core.jobs.recipes import RECIPES, find_parameters
from everspot_core.jobs.timing_rules import timing_faults, too_short_faults
from everspot_core.validation.model_errors import translate_errors
from everspot_core.validation.problems import Problem, cut, near, shown
from pydantic import ValidationError

from everspot_cli.errors import CliError, Exit, fields_wrong, list_problems
from everspot_cli.yamlfile import parse_value, read_yaml

_VALUE = 80  # characters of a wrong value that are shown
_UNDECODED = "has bytes that are not UTF-8"


@dataclass(frozen=True)
class Overrides:
    """`fields`: values by their path, such as `resources.gpus`. `problems`: those of options that cannot be read, which
    are reported with the job's. `code`: the exit code if there are any."""

    fields: dict[str, Any] = field(default_factory=dict)
    problems: tuple[dict[str, str], ...] = ()
    code: Exit = Exit.USER

    @classmethod
    def read(cls, name: str | None, sets: Sequence[str], env: Sequence[str]) -> "Overrides":
        """Read `--name`, `--set FIELD=VALUE` (the value as in the file) and `--env KEY=VALUE`. An option without `=`,
        or whose value is no YAML, becomes one of the `problems`."""
        options = [("--set", "FIELD", words) for words in sets] + [("--env", "KEY", words) for words in env]
        bad = [
            {"field": f"{option} {words}", "problem": f"write {option} {key_name}=VALUE"}
            for option, key_name, words in options
            if not words.partition("=")[0] or "=" not in words
        ]
        fields: dict[str, Any] = {}
        unread: list[dict[str, str]] = []
        for path, equals, value in (text.partition("=") for text in sets):
            try:
                if path and equals:
                    fields[path] = parse_value(value, f"--set {path}")
            except CliError as error:
                unread.append({"field": f"--set {path}", "problem": str(error)})
        pairs = [text.partition("=") for text in env]
        fields |= {f"env.{key}": value for key, equals, value in pairs if key and equals}
        name_field = {"name": name} if name is not None else {}
        return cls(fields | name_field, (*bad, *unread), Exit.USAGE if bad else Exit.USER)

    def over(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the file's fields, replaced by the overrides."""
        data = dict(data)
        for path, value in self.fields.items():
            # The name of a variable is one word, whatever is in it.
            parts = path.split(".", 1) if path.startswith("env.") else path.split(".")
            inner = data
            for part in parts[:-1]:
                existing = inner.get(part)
                inner[part] = dict(existing) if isinstance(existing, dict) else {}
                inner = inner[part]
            inner[parts[-1]] = value
        return data


def read_spec(path: Path, overrides: Overrides | None = None, *, forced: bool = False) -> JobSpec:
    """Return the job that a file describes, with the overrides of the command line. `code` is resolved relative to the
    file. `forced`: the author insists on a deadline that cannot be kept.

    Raises:
        CliError: if there is no such file, or if it is no valid job; with every fault, including those of the options.
    """
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise CliError(f"{path} must be a mapping of fields, such as `name: my-job`")
    return build_spec(path, data, overrides or Overrides(), subject=str(path), forced=forced)


def build_spec(
    path: Path, data: dict[str, Any], overrides: Overrides, *, subject: str, forced: bool = False
) -> JobSpec:
    """Return the job of these fields, as `read_spec` does. `path`: of the job's file; `subject`: its name, for errors.

    Raises:
        CliError: if it is no valid job; with every fault, including those of the options.
    """
    spec, problems = check_spec(path, overrides.over(data), forced=forced)
    if spec is None or overrides.problems:
        raise _spec_error(subject, overrides, problems)
    local_paths = {"code": spec.code, "requirements": spec.requirements}
    spec = spec.model_copy(
        update={n: str((path.parent / v).resolve()) for n, v in local_paths.items() if v is not None}
    )
    undecoded = [Problem(name, _UNDECODED) for name in _undecoded_fields(spec.model_dump(exclude_unset=True))]
    if undecoded:
        raise _spec_error(subject, overrides, undecoded)
    return spec


def _undecoded_fields(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each text that has bytes of a path, a variable or an option that are not UTF-8."""
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        yield path
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _undecoded_fields(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _undecoded_fields(inner, f"{path}[{number}]")


def override_spec(spec: JobSpec, subject: str, overrides: Overrides) -> JobSpec:
    """Return a submitted job with other values in some fields. `subject`: its name, for errors.

    Raises:
        CliError: if the result is no valid job, or if it names other code, requirements or datasets, which are read
            when a job is submitted and kept with it.
    """
    fixed_fields = [
        path for path in overrides.fields if path.partition(".")[0] in ("code", "requirements", "datasets", "image")
    ]
    problems = [Problem(path, "cannot be changed: submit the job's file instead") for path in fixed_fields]
    remaining = Overrides({path: value for path, value in overrides.fields.items() if path not in fixed_fields})
    try:
        changed_spec = JobSpec.from_values(remaining.over(spec.model_dump(exclude_unset=True)), job_rules())
    except ValidationError as error:
        raise _spec_error(
            f"{subject} with these changes", overrides, [*problems, *translate_errors(error, JobSpec)]
        ) from None
    if problems or overrides.problems:
        raise _spec_error(f"{subject} with these changes", overrides, problems)
    return changed_spec


def _spec_error(subject: str, overrides: Overrides, spec_problems: list[Problem]) -> CliError:
    """Return the error with all problems of a job and of the options that change it."""
    problems = [*overrides.problems, *list_problems(spec_problems)]
    if not spec_problems:
        return CliError("options cannot be read", overrides.code, problems=problems)
    hint = "docs/reference/job-file.md lists every field"
    return CliError(
        f"{subject}: {fields_wrong(len(overrides.problems) + len(spec_problems))}",
        overrides.code,
        hint=hint,
        problems=problems,
    )


def check_spec(path: Path, data: dict[str, Any], *, forced: bool = False) -> tuple[JobSpec | None, list[Problem]]:
    """Return the job of these fields, or None, and their problems. `path`: the job's file."""
    problems: list[Problem] = []
    spec: JobSpec | None = None
    try:
        spec = JobSpec.from_values(data, job_rules())
    except ValidationError as error:
        # The rules between fields, which the model asks only where every field is well-formed.
        field_problems = translate_errors(error, JobSpec)
        reported_paths = {problem.path for problem in field_problems}
        rules = (*program_faults(data), *timing_faults(data), *move_faults(data))
        between = [problem for problem in rules if problem.path not in reported_paths]
        problems = [*field_problems, *between]
    budget = data.get("budget")
    for limit in [n for n in Budget.model_fields if budget.get(n, 0) is None] if isinstance(budget, dict) else []:
        problems.append(Problem(f"budget.{limit}", "is empty: give a limit, or remove the field for no limit"))
    recipe = data.get("recipe")
    if isinstance(recipe, str) and find_parameters(recipe) is None:
        words = f"{shown(recipe)} is no recipe{near(recipe, RECIPES)}; allowed: {', '.join(RECIPES)}"
        problems.append(Problem("recipe", words))
    wrong = {re.split(r"[.\[]", problem.path, maxsplit=1)[0] for problem in problems}
    written = {name: value for name, value in data.items() if name not in wrong}
    problems += file_problems(path.parent, written)
    if problems and not forced:
        # Of a job without other faults the deadline is judged later, by what is known of the cluster.
        problems += too_short_faults(written)
    return (None if problems else spec), problems


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
