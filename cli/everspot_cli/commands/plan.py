"""`everspot plan`: the file of a sweep that fits a budget, to edit."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
import yaml
from everspot_core.experiments.sweep import Direction
from everspot_core.jobs.job import JobSubmission

from everspot_cli.commands.options import Json, current_session
from everspot_cli.commands.submit.checks import run_checks
from everspot_cli.commands.submit.context import SubmissionContext, read_experience
from everspot_cli.errors import CliError, Exit
from everspot_cli.specs import Overrides, read_spec
from everspot_cli.sweeping.planning import (
    choose_size,
    find_direction,
    find_rungs,
    measure_run,
    plan_document,
    write_plan,
)
from everspot_cli.sweeping.reading import check_sweep


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("plan")(plan)


def plan(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The job, as docs/reference/job-file.md describes it.")],
    budget: Annotated[float, typer.Option("--budget", min=0.01, max=1e9, help="Dollars for the whole sweep.")],
    metric: Annotated[str, typer.Option("--metric", help="One of the metrics that the job reports.")],
    direction: Annotated[
        Direction | None, typer.Option("--direction", help="Default: by the metric's name, such as loss or accuracy.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="SWEEP", help="A new file beside the job's. Default: print it.")
    ] = None,
    json: Json = False,
) -> None:
    """Propose a sweep of a job that fits a budget, as a file to edit. Nothing is submitted.

    The cost of a run is the median of the job's past runs, or else its expected_duration at catalogue prices. Comments
    in the file say where each figure comes from, and which are assumptions.
    """
    if not metric.strip():
        raise CliError("--metric has to name one of the metrics that the job reports", Exit.USAGE)
    session = current_session(context, json)
    spec = read_spec(file, Overrides.read(None, (), ()))
    now = session.now
    deadline = now + spec.deadline if isinstance(spec.deadline, timedelta) else spec.deadline
    submission = JobSubmission(job_id=spec.name, spec=spec, submitted_at=now, deadline_at=deadline)
    job_context = SubmissionContext.read_if_chosen(session, str(file), submission, wait_for_capacity=False)
    _, refused = run_checks(job_context)
    if refused is not None:
        raise refused
    fidelity, candidates = find_rungs(spec), job_context.candidates
    cost = measure_run(session, spec, fidelity, candidates, read_experience(session).start())
    size = choose_size(spec, budget, cost, fidelity)
    text = write_plan(
        spec,
        file,
        metric=metric,
        direction=find_direction(metric, direction),
        budget=budget,
        cost=cost,
        fidelity=fidelity,
        plan=size,
        candidates=candidates,
    )
    sweep = check_sweep(yaml.safe_load(text), file.with_name(out.name) if out is not None else file)
    if out is not None:
        _write(out, file, text)
    if session.json:
        session.answer(plan_document(text, sweep, cost, size, budget))
    elif out is None:
        session.console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
    else:
        session.console.print(f"Wrote {out}. What it will cost: everspot sweep {out} --dry-run", soft_wrap=True)


def _write(out: Path, job: Path, text: str) -> None:
    """Write the file, which must not exist.

    Raises:
        CliError: if it exists, lies elsewhere than the job's file, or cannot be written.
    """
    if out.resolve().parent != job.resolve().parent:
        raise CliError(f"{out}: a sweep names its job relative to itself", Exit.USAGE, hint=f"--out beside {job}")
    try:
        with out.open("x") as stream:
            stream.write(text)
    except FileExistsError:
        raise CliError(f"{out} exists, and is left as it is") from None
    except OSError as error:
        raise CliError(f"{out} cannot be written: {error.strerror}") from None
