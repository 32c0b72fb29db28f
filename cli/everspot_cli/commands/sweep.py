"""`everspot sweep`: one job run many times with different values, and the best of them."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from everspot_core.counting import counted
from everspot_core.experiments.sweep import Direction, SweepRecord, SweepSpec, Value, trials_to_check
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.validation.problems import SHOWN_AT_MOST
from rich.table import Table
from rich.text import Text

from everspot_cli.commands.options import Json, current_session
from everspot_cli.commands.submit.checks import WAIT_HINT, run_checks
from everspot_cli.commands.submit.command import skew_warnings
from everspot_cli.commands.submit.context import SubmissionContext, read_experience
from everspot_cli.commands.submit.deadline import warn
from everspot_cli.errors import CliError
from everspot_cli.requests import user
from everspot_cli.session import Session
from everspot_cli.specs import Overrides, read_spec
from everspot_cli.sweeping.reading import describe_values, read_sweep
from everspot_cli.sweeping.rungs import describe_estimate, describe_rung, estimate_document, find_length, rung_rows
from everspot_cli.sweeping.runner import SweepRun, SweepStanding, Trial, build_trial_job
from everspot_cli.tables import empty_table

POLL = timedelta(seconds=5)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sweep")(sweep)


def sweep(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The sweep, as docs/guide/sweeps.md describes it.")],
    show: Annotated[bool, typer.Option("--show", help="Only show the progress of the sweep.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check the sweep, and show what each rung is expected to cost.")
    ] = False,
    json: Json = False,
) -> None:
    """Run a job many times with different values of some fields, and find the best. Run it again to continue.

    The trials are ordinary jobs, and the state is in the store: if the command ends, its jobs run on, and the next
    command continues the sweep.
    """
    session = current_session(context, json)
    spec = read_sweep(file)
    job = file.parent / spec.job
    if not show:
        submission_context = _check_trials(session, spec, job)
        if dry_run:
            _print_estimate(session, spec, read_spec(job, Overrides.read(None, (), ())), submission_context)
            return
    _begin_or_check(session, spec, file, begin=not show)
    sweep_run = SweepRun(session, spec, job)
    standing = sweep_run.turn(act=not show)
    printed_states: list[str] = []
    while not (show or standing.over):
        states = [trial.state for trial in standing.trials]
        if not session.json and states != printed_states:  # not for the cost, which changes all the time
            printed_states = states
            session.errors.print(_line(spec, standing), soft_wrap=True)
        session.clock.sleep(POLL)
        standing = sweep_run.turn()
    if session.json:
        session.answer(_answer(spec, standing))
    else:
        _print(session, spec, standing)


def _print_estimate(session: Session, spec: SweepSpec, file_job: JobSpec, context: SubmissionContext) -> None:
    length = find_length(session, spec, file_job, context.submission.spec, read_experience(session).start())
    document = estimate_document(spec, length, context.candidates)
    if session.json:
        session.answer(document)
    else:
        session.console.print("\n".join(describe_estimate(document)), markup=False, soft_wrap=True)


def _check_trials(session: Session, spec: SweepSpec, job: Path) -> SubmissionContext:
    """Check that the cluster accepts the trials, before the first one is submitted.

    Parameters and environment variables do not matter to the cluster: only their first values are checked.
    Returns the context of the first trial, of full size.

    Raises:
        CliError: naming each combination of values that is refused, and why.
    """
    first = {path: dimension.first for path, dimension in spec.job_fields.items()}
    shaping = {path: dim for path, dim in spec.job_fields.items() if not path.startswith(("parameters.", "env."))}
    warnings: list[str] = []
    refused: list[tuple[dict[str, Value], CliError]] = []
    trials = trials_to_check(shaping)
    jobs = [_with_budget(build_trial_job(session, spec, job, 0, first | values), spec) for values in trials]
    context = SubmissionContext.read(session, str(job), jobs[0], wait_for_capacity=False)  # once for all trials
    for values, trial in zip(trials, jobs, strict=True):
        try:
            trial_warnings, trial_refusal = run_checks(context.with_job(trial))
        except CliError as error:  # not about a field
            trial_warnings, trial_refusal = [], error
        if trial_refusal is None:
            warnings += trial_warnings
        else:
            refused.append((values, trial_refusal))
    skew_warnings(session)
    warn(session, dict.fromkeys(warnings))
    if not refused:
        return context
    refusal = refused[0][1]
    hint = refusal.hint.removesuffix(WAIT_HINT)
    if len(refused) == len(trials):
        raise CliError(str(refusal), refusal.code, hint=hint, problems=refusal.problems)
    problems = [
        {"field": f"fields: {describe_values(values)}", "problem": problem["problem"]}
        for values, error in refused
        for problem in error.problems or [{"problem": str(error)}]
    ]
    raise CliError(
        f"the cluster refuses {counted(len(refused), 'combination')} of the sweep's values",
        hint=hint,
        problems=problems[:SHOWN_AT_MOST],
    )


def _with_budget(trial: JobSubmission, spec: SweepSpec) -> JobSubmission:
    """Return a trial with the sweep's budget in dollars if it has none of its own: both need the same prices."""
    if spec.budget.dollars is None or trial.spec.budget.dollars is not None:
        return trial
    budget = trial.spec.budget.model_copy(update={"dollars": spec.budget.dollars})
    return trial.model_copy(update={"spec": trial.spec.model_copy(update={"budget": budget})})


def _begin_or_check(session: Session, spec: SweepSpec, file: Path, *, begin: bool) -> None:
    """Begin the sweep, or check that it is the one that was begun; its caps may have changed.

    Raises:
        CliError: if it differs in more than its caps, or if it is only shown and has never begun.
    """
    record = SweepRecord(spec=spec, made_at=session.now, made_by=user())
    existing = session.store.studies.begin(record) if begin else session.store.studies.get(spec.name)
    if existing is None:
        raise CliError(f"the sweep {spec.name} was never begun", hint=f"everspot sweep {file}")
    if different := spec.differs(existing.spec):
        problems = [{"field": name, "problem": "is not what the sweep was begun with"} for name in different]
        raise CliError(
            f"{file}: another sweep named {spec.name} was begun at {existing.made_at:%Y-%m-%d %H:%M} UTC",
            hint="give it another name, or put the fields back",
            problems=problems,
        )
    if begin and existing.spec != spec:
        session.store.studies.change(existing.model_copy(update={"spec": spec}))


def _best(spec: SweepSpec, standing: SweepStanding) -> Trial | None:
    sign = 1 if spec.direction is Direction.MAXIMIZE else -1
    top = max((t.rung for t in standing.useful), default=0)  # values of different sizes cannot be compared
    useful = [t for t in standing.useful if t.value is not None and t.rung == top]
    return max(useful, key=lambda t: sign * (t.value or 0.0), default=None)


def _answer(spec: SweepSpec, standing: SweepStanding) -> dict[str, Any]:
    best = _best(spec, standing)
    return {
        "sweep": spec.name,
        "metric": spec.metric,
        "over": standing.over,
        "budget_used_up": standing.exhausted,
        "stopped": standing.stopped,
        "best": best.job_id if best is not None else None,
        **standing.cost.figures(),
        "rungs": rung_rows(spec, standing.rung_costs(spec.rungs)),
        "gpu_hours": round(standing.spent.gpu_hours, 6),
        "trials": [
            {
                "number": t.number,
                "job_id": t.job_id,
                "state": t.state,
                "rung": t.rung,
                "value": t.value,
                "step": t.step,
                "fields": t.fields,
                "cost_usd": round(t.spent.dollars, 6),
                "gpu_hours": round(t.spent.gpu_hours, 6),
            }
            for t in standing.trials
        ],
    }


def _line(spec: SweepSpec, standing: SweepStanding) -> str:
    """Return the state of the sweep in one line."""
    states = [trial.state for trial in standing.trials]
    best = _best(spec, standing)
    most = sum(spec.fidelity.rung_sizes(spec.trials)) if spec.fidelity is not None else spec.trials
    best_text = f"; best so far {best.value:.5g} ({best.job_id})" if best is not None and best.value is not None else ""
    return (
        f"{len(states)} of {counted(most, 'trial')}: {states.count('RUNNING')} under way, "
        f"{states.count('COMPLETE')} done, {states.count('PRUNED')} ended early, {states.count('FAIL')} failed; "
        f"${standing.spent.dollars:.4f}{best_text}"
    )


def _print(session: Session, spec: SweepSpec, standing: SweepStanding) -> None:
    best = _best(spec, standing)
    session.console.print(_table(spec, standing, best))
    costs = standing.cost.figures()
    notes = [_line(spec, standing)]
    each = [
        f"${value:.4f} for each {unit}"
        for unit, value in (
            ("trial", costs["cost_per_trial_usd"]),
            ("useful one", costs["cost_per_useful_trial_usd"]),
        )
        if value is not None
    ]
    notes += [", ".join(each)] if each else []
    notes += [describe_rung(row) for row in rung_rows(spec, standing.rung_costs(spec.rungs))]
    notes += ["The budget is used up."] if standing.exhausted else []
    notes += [f"No further trial: {standing.stopped}."] if standing.stopped is not None else []
    notes += [session.scale_note()] if session.scale_note() else []
    session.console.print(Text("\n".join(notes), style="dim"))


def _table(spec: SweepSpec, standing: SweepStanding, best: Trial | None) -> Table:
    names = list(spec.job_fields)
    table = empty_table(["JOB", "STATE", *(n.upper() for n in names), spec.metric.upper(), "STEP", "$"], text_columns=2)
    for trial in standing.trials:
        values = [f"{v:.5g}" if isinstance(v, float) else str(v) for v in (trial.fields.get(n, "—") for n in names)]
        value = "—" if trial.value is None else f"{trial.value:.5g}"
        mark = " *" if best is not None and trial.number == best.number else ""
        table.add_row(trial.job_id, trial.state, *values, value + mark, str(trial.step), f"{trial.spent.dollars:.4f}")
    return table
