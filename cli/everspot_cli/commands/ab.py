"""`everspot ab`: one job in several number formats, with the same seeds, and whether they reach the same metric."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from everspot_core.counting import counted
from everspot_core.experiments.precision_comparison import MOST_SEEDS, ComparisonSpec
from everspot_core.experiments.sweep import Direction, infer_direction
from everspot_core.jobs.recipes import find_metrics
from everspot_core.validation.model_errors import translate_errors
from everspot_core.validation.problems import Problem, near, shown
from pydantic import ValidationError
from rich.text import Text

from everspot_cli.commands.options import Env, Json, current_session
from everspot_cli.commands.submit.checks import run_checks
from everspot_cli.commands.submit.command import skew_warnings
from everspot_cli.commands.submit.context import SubmissionContext
from everspot_cli.commands.submit.deadline import warn
from everspot_cli.errors import CliError, Exit, list_problems
from everspot_cli.precision.answer import (
    build_answer,
    build_table,
    describe_progress,
    describe_smaller_types,
    describe_trial,
)
from everspot_cli.precision.runner import ComparisonRun, ComparisonStanding, refuse_unreported
from everspot_cli.precision.trial import TypeTrial, TypeTrialRun, find_type
from everspot_cli.session import Session
from everspot_cli.specs import Overrides, read_spec

POLL = timedelta(seconds=5)
_OPTIONS = {"precisions": "--precision", "seeds": "--seeds", "seed_field": "--seed-field", "metric": "--metric"}
_OPTIONS |= {"tolerance": "--tolerance", "name": "--name", "first_seed": "--first-seed"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ab")(ab)


def ab(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The job, as docs/reference/job-file.md describes it.")],
    precision: Annotated[
        str,
        typer.Option(
            "--precision",
            metavar="FORMATS",
            help="Number formats, such as fp32,bf16; the first is the baseline.",
        ),
    ],
    metric: Annotated[str, typer.Option("--metric", metavar="NAME", help="The metric that the job reports last.")],
    tolerance: Annotated[
        str,
        typer.Option(
            "--tolerance",
            metavar="AMOUNT",
            help="The acceptable difference: 0.5% of the baseline's mean, or a number in the metric's unit.",
        ),
    ],
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, max=MOST_SEEDS, help="Runs of each format, one per seed.")
    ] = 3,
    first_seed: Annotated[int, typer.Option("--first-seed", metavar="SEED", min=0, help="The first of the seeds.")] = 0,
    seed_field: Annotated[
        str | None,
        typer.Option(
            "--seed-field",
            metavar="FIELD",
            help="The job's field of the seed. Default: parameters.seed of a recipe, env.SEED of a program.",
        ),
    ] = None,
    direction: Annotated[
        Direction | None,
        typer.Option("--direction", help="Default: by the metric's name, such as loss or accuracy."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The comparison's name. Default: the job's, with -ab.")
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Override a field of the job; repeatable."),
    ] = None,
    env: Env = None,
    try_type: Annotated[
        str | None,
        typer.Option(
            "--try", metavar="TYPE", help="At the end, run the cheapest format that passes on this type, and check it."
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Only show the progress of the comparison.")] = False,
    json: Json = False,
) -> None:
    """Compare number formats: does a cheaper one reach the same metric? Run it again to continue.

    Each format runs once with each seed: the same data in the same order. The runs are ordinary jobs. Differences from
    the first format are taken seed by seed, with a 95 % interval by Student's t.

    Exit code 0 only if every other format is equivalent or better, and with --try fits the type. Otherwise the exit
    code is 1, also while runs have not ended.
    """
    session = current_session(context, json)
    if show and try_type is not None:
        raise CliError("--try runs a job, and --show only shows: give one of them", Exit.USAGE)
    overrides = Overrides.read(None, set or (), env or ())
    spec = _read_spec(
        session, file, overrides, precision, metric, tolerance, seeds, first_seed, seed_field, direction, name
    )
    run = ComparisonRun(session, spec, file, overrides)
    if show:
        if session.store.studies.get_comparison(spec.name) is None:
            raise CliError(f"the comparison {spec.name} was never begun", hint=f"everspot ab {file} … without --show")
        standing, trial = run.turn(act=False), None
    else:
        if try_type is not None:  # before the runs, which cost money
            find_type(session, try_type)
        _check_runs(session, file, run, spec)
        run.begin()
        standing = _wait(session, spec, run)
        trial = _try(session, spec, run, standing, try_type) if try_type is not None else None
    if session.json:
        session.answer(build_answer(spec, standing, trial))
    else:
        _print(session, spec, standing, trial)
    if not standing.passed or (trial is not None and not trial.passed):
        raise typer.Exit(Exit.USER)


def _read_spec(
    session: Session,
    file: Path,
    overrides: Overrides,
    precision: str,
    metric: str,
    tolerance: str,
    seeds: int,
    first_seed: int,
    seed_field: str | None,
    direction: Direction | None,
    name: str | None,
) -> ComparisonSpec:
    """Return the comparison that the command line describes.

    Raises:
        CliError: naming every wrong option, or if the file is no valid job.
    """
    job = read_spec(file, overrides)
    inferred = direction or infer_direction(metric)
    fields: dict[str, Any] = {
        "name": name or f"{job.name[:36].rstrip('-')}-ab",
        "precisions": [text.strip().lower() for text in precision.split(",")],
        "seeds": seeds,
        "first_seed": first_seed,
        "seed_field": seed_field or ("parameters.seed" if job.recipe is not None else "env.SEED"),
        "metric": metric,
        "direction": inferred or Direction.MAXIMIZE,
        "tolerance": tolerance,
    }
    problems: list[Problem] = []
    spec: ComparisonSpec | None = None
    try:
        spec = ComparisonSpec.model_validate(fields)
    except ValidationError as error:
        problems = [
            Problem(_option(problem.path), problem.reason) for problem in translate_errors(error, ComparisonSpec)
        ]
    if inferred is None and spec is not None:
        begun = session.store.studies.get_comparison(spec.name)
        if begun is not None and begun.spec.metric == metric:  # an earlier release did not need the option
            spec = spec.model_copy(update={"direction": begun.spec.direction})
        else:
            words = f"the name {metric} does not say whether lower or higher is better: give minimize or maximize"
            problems.append(Problem("--direction", words))
    reported = find_metrics(job.recipe) if job.recipe is not None else None
    if reported is not None and metric not in reported:
        allowed = ", ".join(sorted(reported))
        words = f"{job.recipe} does not report {shown(metric)}{near(metric, reported)}; allowed: {allowed}"
        problems.append(Problem("--metric", words))
    if spec is None or problems:
        raise CliError("the comparison cannot be done", Exit.USAGE, problems=list_problems(problems))
    return spec


def _option(path: str) -> str:
    """Return the option of a field of the comparison."""
    return next((option for field, option in _OPTIONS.items() if path.startswith(field)), path)


def _check_runs(session: Session, file: Path, run: ComparisonRun, spec: ComparisonSpec) -> None:
    """Check that the cluster accepts the runs, before the first one is submitted. Formats and seeds do not matter to
    the cluster, but each is checked against the job's fields.

    Raises:
        CliError: if a run is no valid job, or the cluster refuses it.
    """
    submissions = [run.build(arm, 0) for arm in spec.arms]
    context = SubmissionContext.read(session, str(file), submissions[0], wait_for_capacity=False)
    warnings, refusal = run_checks(context)
    skew_warnings(session)
    warn(session, dict.fromkeys(warnings))
    if refusal is not None:
        raise refusal


def _wait(session: Session, spec: ComparisonSpec, run: ComparisonRun) -> ComparisonStanding:
    """Submit the runs, and wait until all have ended. The wait has no time limit: the jobs have limits, and Ctrl-C does
    no harm."""
    standing = run.turn()
    states: list[str] = []
    while not standing.over:
        refuse_unreported(spec, standing)
        now = [each.state.value for each in standing.runs]
        if not session.json and now != states:
            states = now
            session.errors.print(describe_progress(standing), soft_wrap=True)
        session.clock.sleep(POLL)
        standing = run.turn()
    refuse_unreported(spec, standing)
    return standing


def _try(
    session: Session, spec: ComparisonSpec, run: ComparisonRun, standing: ComparisonStanding, name: str
) -> TypeTrial | None:
    """Run the cheapest format that passes on a type, and wait for its end. None if no format passes."""
    winner = standing.winner
    if winner is None:
        return None
    trial_run = TypeTrialRun(session, spec, run, winner, name)
    trial = trial_run.turn()
    while not trial.run.state.final:
        session.clock.sleep(POLL)
        trial = trial_run.turn()
    return trial


def _print(session: Session, spec: ComparisonSpec, standing: ComparisonStanding, trial: TypeTrial | None) -> None:
    session.console.print(build_table(spec, standing))
    for arm in standing.arms:
        for line in describe_smaller_types(arm):
            session.console.print(line, markup=False)
    first = standing.arms[0].precision.value
    notes = [
        f"{counted(spec.seeds, 'seed')}; differences from {first} seed by seed, 95 % interval; tolerance "
        f"{spec.tolerance}; {spec.direction.value} {spec.metric}.",
        describe_progress(standing),
    ]
    notes += [describe_trial(trial)] if trial is not None else []
    notes += [session.scale_note()] if session.scale_note() else []
    session.console.print(Text("\n".join(notes), style="dim"))
