"""Reads a sweep's file, and its job's file with the sweep's values. One error names the faults of both."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from everspot_core.faults import faults
from everspot_core.field_types import NAME
from everspot_core.problems import Problem
from everspot_core.sweep import Dimension, SweepSpec
from pydantic import ValidationError

from everspot_cli.errors import CliError, fields_wrong, listed
from everspot_cli.specs import Overrides, examined
from everspot_cli.yamlfile import read_yaml


def read_sweep(file: Path) -> SweepSpec:
    """The sweep that a file describes, after a check of its values in the job's file.

    Raises:
        CliError: naming every fault, of the sweep, of its values in the job, and of the job itself.
    """
    data = read_yaml(file)
    if not isinstance(data, dict):
        raise CliError(f"{file} must be a mapping of fields, such as `name: my-sweep`")
    spec, found = None, []
    try:
        spec = SweepSpec.model_validate(data)
    except ValidationError as error:
        found = faults(error, SweepSpec)
    job = data.get("job")
    if isinstance(job, str) and job:
        found += _of_job(file.parent / job, data, alone=not found)
    if spec is None or found:
        hint = "docs/sweeps.md has every field"
        raise CliError(f"{file}: {fields_wrong(len(found))}", hint=hint, problems=listed(found))
    return spec


def values_of(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a trial of the sweep `name` changes in its job: these values, and the job's name."""
    return {path: str(value) if path.startswith("env.") else value for path, value in fields.items()} | {"name": name}


def _of_job(path: Path, data: dict[str, Any], *, alone: bool) -> list[Problem]:
    """The problems of the values of the sweep `data` in its job, and of the job itself. `alone`: nothing else is wrong.

    Raises:
        CliError: if the job's file alone is wrong.
    """
    try:
        job = read_yaml(path)
        if not isinstance(job, dict):
            raise CliError(f"{path} must be a mapping of fields, such as `name: my-job`")
    except CliError as error:
        if alone:
            raise
        return [Problem("job", str(error))]
    written = data.get("fields")
    fields = written if isinstance(written, dict) else {}
    firsts = {name: _first(values) for name, values in fields.items()}
    given = data.get("name")
    name = given if isinstance(given, str) and re.match(NAME, given) else "sweep"
    _, before = examined(path, Overrides(values_of(name, {})).over(job))
    _, found = examined(path, Overrides(values_of(name, firsts)).over(job))
    own = [problem for problem in found if problem in before]
    blamed = [_blamed(problem, firsts) for problem in found if problem not in before]
    of_sweep = [problem for problem in blamed if problem is not None]
    if own and alone and not of_sweep:
        hint = "docs/reference-spec.md lists every field"
        raise CliError(f"{path}: {fields_wrong(len(own))}", hint=hint, problems=listed(own))
    return [*of_sweep, *(Problem(f"{path.name}: {problem.path}", problem.reason) for problem in own)]


def _first(values: Any) -> Any:
    """One of a field's values; None if they cannot be read."""
    try:
        return Dimension.model_validate(values).first
    except ValidationError:
        return None


def _blamed(problem: Problem, firsts: Mapping[str, Any]) -> Problem | None:
    """The problem as one of the sweep's own field. None if that field has no value, which is reported already."""
    for path in problem.path.split(", "):
        for field, first in firsts.items():
            if _within(path, field) or _within(field, path):
                if first is None and not problem.reason.startswith("unknown field"):
                    return None
                return Problem(f"fields.{field}", problem.reason)
    return Problem("fields", f"with these, {problem.path}: {problem.reason}")


def _within(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith((f"{outer}.", f"{outer}["))
