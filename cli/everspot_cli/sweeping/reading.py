"""Reads a sweep's file, and its job's file with the sweep's values. One error names the faults of both."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from everspot_core.experiments.fidelity import fidelity_faults
from everspot_core.experiments.sweep import SWEEP_TAG, Dimension, Fidelity, SweepSpec, trials_to_check
from everspot_core.jobs.recipes import find_metrics
from everspot_core.validation.field_types import NAME
from everspot_core.validation.model_errors import translate_errors
from everspot_core.validation.problems import Problem, near, shown
from pydantic import ValidationError

from everspot_cli.errors import CliError, fields_wrong, list_problems
from everspot_cli.specs import Overrides, check_spec
from everspot_cli.yamlfile import read_yaml

STEP_TOLERANCE = 1e-9
"""Relative error of a quotient of two decimal fractions such as 0.3 / 0.1, and more."""


def read_sweep(file: Path) -> SweepSpec:
    """Return the sweep that a file describes, after a check of its values in the job's file.

    Raises:
        CliError: naming every fault, of the sweep, of its values in the job, and of the job itself.
    """
    data = read_yaml(file)
    if not isinstance(data, dict):
        raise CliError(f"{file} must be a mapping of fields, such as `name: my-sweep`")
    return check_sweep(data, file)


def check_sweep(data: dict[str, Any], file: Path) -> SweepSpec:
    """Return the sweep that the content of a file describes, which need not be written yet. The job's file is beside
    it.

    Raises:
        CliError: as `read_sweep`.
    """
    spec, problems = None, []
    try:
        spec = SweepSpec.model_validate(data)
    except ValidationError as error:
        problems = translate_errors(error, SweepSpec)
    if spec is not None:
        problems += _of_fields(spec)
    fidelity = _fidelity(data)
    if fidelity is not None:
        problems += fidelity_faults(fidelity)
    job = data.get("job")
    if isinstance(job, str) and job:
        problems += _of_job(file.parent / job, data, fidelity, alone=not problems)
    if spec is None or problems:
        hint = "docs/guide/sweeps.md has every field"
        raise CliError(f"{file}: {fields_wrong(len(problems))}", hint=hint, problems=list_problems(problems))
    return spec


def _of_fields(spec: SweepSpec) -> list[Problem]:
    """Return the problems of fields whose values the trials would not get as written."""
    problems = [
        Problem(f"fields.{name}", "the sweep sets it itself, the same in all of its trials")
        for name in ("name", f"tags.{SWEEP_TAG}")
        if name in spec.fields
    ]
    for name, dimension in spec.fields.items():
        low, high, step = dimension.low, dimension.high, dimension.step
        if low is None or high is None or step is None:
            continue
        steps = (high - low) / step
        if abs(steps - round(steps)) > STEP_TOLERANCE * max(1.0, steps):
            last = float(f"{low + int(steps) * step:.12g}")
            words = f"step {step:g} ends at {last:g} and never reaches high, {high:g}: give another step or high"
            problems.append(Problem(f"fields.{name}", words))
    return problems


def trial_fields(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a trial of the sweep `name` changes in its job: these values, and the job's name."""
    return {path: str(value) if path.startswith("env.") else value for path, value in fields.items()} | {"name": name}


def _of_job(path: Path, data: dict[str, Any], fidelity: Fidelity | None, *, alone: bool) -> list[Problem]:
    """Return the problems of the sweep's values in its job, and of the job itself. `alone`: nothing else is wrong.

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
    fields = dict(written) if isinstance(written, dict) else {}
    if fidelity is not None:
        fields |= {fidelity.field: {"choices": list(reversed(fidelity.values))}}
    dimensions = {name: _dimension(values) for name, values in fields.items()}
    firsts = {name: dimension.first if dimension else None for name, dimension in dimensions.items()}
    sweep_name = data.get("name")
    name = sweep_name if isinstance(sweep_name, str) and re.match(NAME, sweep_name) else "sweep"
    _, before = check_spec(path, Overrides(trial_fields(name, {})).over(job))
    _, problems = check_spec(path, Overrides(trial_fields(name, firsts)).over(job))
    own = [problem for problem in problems if problem in before]
    blamed = [_blame_sweep_field(problem, firsts) for problem in problems if problem not in before]
    of_sweep = [problem for problem in blamed if problem is not None]
    valid = {name: dimension for name, dimension in dimensions.items() if dimension is not None}
    for values in trials_to_check(valid)[1:]:
        _, refused = check_spec(path, Overrides(trial_fields(name, {**firsts, **values})).over(job))
        of_sweep += _of_values([problem for problem in refused if problem not in problems], values)
    if job.get("every") is not None or "every" in fields:
        words = "each trial would begin a series, whose runs go on when the sweep is over: a trial has no `every`"
        of_sweep.append(Problem("fields.every" if "every" in fields else "job", words))
    of_sweep = list(dict.fromkeys([*of_sweep, *_of_metric(data.get("metric"), job.get("recipe"))]))
    if own and alone and not of_sweep:
        hint = "docs/reference/job-file.md lists every field"
        raise CliError(f"{path}: {fields_wrong(len(own))}", hint=hint, problems=list_problems(own))
    if fidelity is not None:
        place = f"fields.{fidelity.field}"
        of_sweep = [Problem("fidelity", p.reason) if p.path == place else p for p in of_sweep]
    return [*of_sweep, *(Problem(f"{path.name}: {problem.path}", problem.reason) for problem in own)]


def _fidelity(data: Mapping[str, Any]) -> Fidelity | None:
    """Parse the fidelity field; None if there is none, or it is invalid."""
    try:
        return Fidelity.model_validate(data["fidelity"]) if data.get("fidelity") is not None else None
    except ValidationError:
        return None


def _dimension(values: Any) -> Dimension | None:
    """Parse the values of a field; None if they are invalid."""
    try:
        return Dimension.model_validate(values)
    except ValidationError:
        return None


def _of_values(problems: list[Problem], values: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of a trial as those of the sweep's fields, with the value that the job refuses."""
    blamed = []
    for problem in problems:
        field = next((f for f in values for p in problem.path.split(", ") if _within(p, f) or _within(f, p)), None)
        if field is None:
            blamed.append(Problem("fields", f"with {describe_values(values)}: {problem.path}: {problem.reason}"))
        else:
            blamed.append(Problem(f"fields.{field}", f"{shown(values[field])}: {problem.reason}"))
    return blamed


def describe_values(values: Mapping[str, Any]) -> str:
    """Return the values of a trial in one line."""
    return ", ".join(f"{path}={shown(value)}" for path, value in values.items())


def _of_metric(metric: Any, recipe: Any) -> list[Problem]:
    """Return the problem of a metric that the job's recipe does not report. A program's metrics are not known yet."""
    reported = find_metrics(recipe) if isinstance(recipe, str) else None
    if reported is None or not isinstance(metric, str) or metric in reported:
        return []
    allowed = ", ".join(sorted(reported))
    return [Problem("metric", f"{recipe} does not report {shown(metric)}{near(metric, reported)}; allowed: {allowed}")]


def _blame_sweep_field(problem: Problem, firsts: Mapping[str, Any]) -> Problem | None:
    """Return the problem as one of a field of the sweep. None if that field has no value, which is reported already."""
    for path in problem.path.split(", "):
        for field, first in firsts.items():
            if _within(path, field) or _within(field, path):
                if first is None and not problem.reason.startswith("unknown field"):
                    return None
                return Problem(f"fields.{field}", problem.reason)
    return Problem("fields", f"with these, {problem.path}: {problem.reason}")


def _within(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith((f"{outer}.", f"{outer}["))
