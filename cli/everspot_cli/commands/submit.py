"""`everspot submit`."""

import secrets
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from everspot_core.candidates import Candidate, candidates, misfits, nearest
from everspot_core.catalogue import Catalogue, builtin, region_of
from everspot_core.documents import format_duration
from everspot_core.job import JobSpec, JobSubmission
from everspot_core.records import EventKind
from everspot_core.schedule.feasible import Verdict, verdict
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from everspot_cli.commands.control import user
from everspot_cli.commands.options import Json, session_of
from everspot_cli.commands.submit_deadline import deadline_row, refusal, sentence, warn, warnings
from everspot_cli.errors import CliError
from everspot_cli.session import Session
from everspot_cli.specs import read_spec
from everspot_cli.tables import NARROW, sheet
from everspot_cli.views import instance_rows

SHOWN = 12


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("submit")(submit)


def submit(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The job, as docs/reference-spec.md describes it.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check it, and show what it could run on.")] = False,
    region: Annotated[
        list[str] | None, typer.Option("--region", help="With --dry-run: regions to price. Default: the cluster's.")
    ] = None,
    json: Json = False,
) -> None:
    """Submit a job. Once this returns, the job is never lost.

    A deadline that could not be kept even on-demand is refused, with the earliest that could be and its cost.
    """
    session = session_of(context, json)
    submission = _submission(session, file)
    if dry_run:
        _dry_run(session, file, submission, region)
        return
    said = verdict(submission, _candidates(session, submission)) if submission.deadline_at is not None else None
    if said is not None and said.feasible is False:
        raise refusal(file, said)
    warn(session, warnings(said))
    submission = _send(session, submission)
    if session.json:
        session.answer({"job_id": submission.job_id, "submitted_at": submission.submitted_at,
                        "deadline_at": submission.deadline_at, "code_digest": submission.code_digest,
                        "warnings": warnings(said)})  # fmt: skip
    else:
        session.console.print(f"Submitted [bold]{submission.job_id}[/]")
        session.console.print(what_next(submission.job_id), markup=False, soft_wrap=True)


def what_next(job_id: str) -> str:
    """The commands that make sense now, with the real id."""
    return (
        "\nWhat next\n"
        f"  everspot logs -f {job_id}       follow what it prints\n"
        f"  everspot job {job_id}           its state and history\n"
        f"  everspot jobs --watch{' ' * len(job_id)}   the whole queue\n"
        f"  everspot interrupt {job_id}     the drill: does it resume?\n"
        f"  everspot report {job_id}        what it cost\n"
        f"  everspot cancel {job_id}        end it"
    )


def _submission(session: Session, file: Path) -> JobSubmission:
    """The job of a file, as it would be submitted now."""
    spec, now = read_spec(file), session.now
    deadline = now + spec.deadline if isinstance(spec.deadline, timedelta) else spec.deadline
    job_id = f"{spec.name}-{secrets.token_hex(3)}"
    return JobSubmission(job_id=job_id, spec=spec, submitted_at=now, deadline_at=deadline, submitted_by=user())


def _candidates(session: Session, submission: JobSubmission) -> list[Candidate]:
    """What the job might run on, by the catalogue and the manifest, which opening the store has read anyway."""
    catalogue, region = session.catalogue, session.manifest.region
    return candidates(submission.spec.resources, catalogue, [region] if region in catalogue.regions else None)


def _send(session: Session, submission: JobSubmission) -> JobSubmission:
    code = Path(submission.spec.code) if submission.spec.code else None
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=session.errors, transient=True,
        disable=session.json or code is None,
    ) as progress:  # fmt: skip
        progress.add_task(f"packing and uploading {code}", total=None)
        submission = session.store.submit(submission, code)
    session.store.event_writer(submission.job_id, 0, "cli").emit(EventKind.SUBMITTED, by=submission.submitted_by)
    return submission


def _dry_run(session: Session, file: Path, submission: JobSubmission, regions: list[str] | None) -> None:
    spec = submission.spec
    catalogue, here, alive = _cluster(session)
    found = candidates(spec.resources, catalogue, regions or here, spec.expected_duration)
    said = verdict(submission, found)
    today = datetime.now().astimezone().date()  # the age of a price is counted in real days
    if session.json:
        session.answer({"spec": spec.model_dump(mode="json"), "candidates": [_row(c, alive, today) for c in found],
                        "fits_now": sorted(t for t in alive if _fits(catalogue, t, spec)),
                        "deadline": deadline_row(said), "warnings": warnings(said)})  # fmt: skip
    if not found and not any(_fits(catalogue, t, spec) for t in alive):
        lacks = "; ".join(f"{kind.name}: {', '.join(what)}" for kind, what in nearest(spec.resources, catalogue))
        raise CliError("no instance type of the catalogue has what the job needs", hint=f"nearest: {lacks}")
    if not session.json:
        _print_candidates(session, spec, found, alive, today)
        _print_deadline(session, said)
    if said is not None and said.feasible is False:
        raise refusal(file, said)


def _print_deadline(session: Session, said: Verdict | None) -> None:
    warn(session, warnings(said))
    if said is not None and said.feasible:
        session.console.print(sentence(said), markup=False, soft_wrap=True)


def _fits(catalogue: Catalogue, name: str, spec: JobSpec) -> bool:
    return name in catalogue.types and not misfits(catalogue.types[name], spec.resources)


def _cluster(session: Session) -> tuple[Catalogue, list[str] | None, set[str]]:
    """The catalogue, the cluster's region and the types that live there; without a store, everything is priced."""
    try:
        session.store_url  # noqa: B018 - whether there is one at all
    except CliError:
        return builtin(), None, set()
    live = [row for row in instance_rows(session) if row["role"] == "agent"]
    region = session.manifest.region or next((region_of(row["zone"]) for row in live), "")
    types = {row["instance_type"] for row in live}
    return session.catalogue, [region] if region in session.catalogue.regions else None, types


def _row(candidate: Candidate, alive: set[str], today: date) -> dict[str, Any]:
    kind, low_high, listed = candidate.instance_type, candidate.spot, candidate.on_demand
    dated = listed or (low_high[0] if low_high else None)
    return {
        **kind.model_dump(exclude={"on_demand_usd_per_hour"}),
        "region": candidate.region,
        "zones": list(candidate.zones),
        "spot_usd_per_hour": [p.usd_per_hour for p in low_high] if low_high else None,
        "on_demand_usd_per_hour": listed.usd_per_hour if listed else None,
        "expected_spot_usd": list(candidate.spot_cost) if candidate.spot_cost else None,
        "expected_on_demand_usd": candidate.on_demand_cost,
        "in_cluster": kind.name in alive,
        "price_as_of": str(dated.as_of) if dated and dated.as_of else None,
        "price_age": dated.age(today) if dated else None,
        "price_source": dated.source if dated else None,
    }


def _print_candidates(session: Session, spec: JobSpec, found: list[Candidate], alive: set[str], today: date) -> None:
    expected = format_duration(spec.expected_duration) if spec.expected_duration else None
    wide = session.console.width >= NARROW
    ordered = sorted(found, key=lambda c: c.instance_type.name not in alive)[:SHOWN]  # what is there goes first
    columns = ["TYPE", "REGION", "VCPU", "GIB", "SPOT\n$/H", "ON-DEMAND\n$/H", "SAVES"]
    if expected:
        columns += [f"SPOT $\nFOR {expected}", f"ON-DEMAND $\nFOR {expected}"]
    rows = [_cells(candidate, alive, " to " if wide else "-", bool(expected)) for candidate in ordered]
    # Where columns are dear, a region that all share is told below.
    told = [n for n in range(len(columns)) if n != 1 or wide or len({row[1] for row in rows}) > 1]
    table = sheet([columns[n] for n in told], left=sum(n < 2 for n in told), fold=("TYPE",))
    for row in rows:
        table.add_row(*(row[n] for n in told))
    session.console.print(table)
    _footnotes(session, ordered, len(found), alive, today)


def _cells(candidate: Candidate, alive: set[str], dash: str, expected: bool) -> list[str]:
    kind, spot, listed = candidate.instance_type, candidate.spot, candidate.on_demand
    saves = [100 * (1 - p.usd_per_hour / listed.usd_per_hour) for p in reversed(spot)] if spot and listed else []
    more = " ".join([*([f"{kind.gpus} {kind.gpu}"] if kind.gpus else []), *([kind.arch] * (kind.arch != "x86_64"))])
    cells = [
        kind.name + (" *" if kind.name in alive else "") + (f"\n  {more}" if more else ""),
        candidate.region,
        str(kind.vcpus),
        f"{kind.memory_gib:g}",
        _span([p.usd_per_hour for p in spot] if spot else None, dash),
        f"{listed.usd_per_hour:.4f}" if listed else "—",
        _span(saves, dash, "{:.0f}", " %"),
    ]
    if expected:
        cells += [_span(candidate.spot_cost, dash), _span([candidate.on_demand_cost] * 2, dash)]
    return cells


def _footnotes(session: Session, shown: list[Candidate], count: int, alive: set[str], today: date) -> None:
    prices = [p for c in shown for p in (c.on_demand, *(c.spot or ())) if p is not None]
    sources = sorted({(p.source, p.age(today)) for p in prices})
    regions = sorted({c.region for c in shown})
    where = f" in {regions[0]}" if len(regions) == 1 else ""
    notes = [f"Shown {len(shown)} of {count} candidates{where}. Nothing was submitted."]
    notes.append("Spot prices from the cheapest to the dearest zone; no interruption is reckoned with.")
    if any(c.instance_type.name in alive for c in shown):
        notes.append("* runs in the cluster now")
    notes += [f"Prices: {source}, {age}." for source, age in sources]
    session.console.print("\n".join(notes), style="dim", markup=False)


def _span(values: Sequence[float | None] | None, dash: str, form: str = "{:.4f}", unit: str = "") -> str:
    """From the lowest to the highest zone of the region; `—` if it is not known."""
    if not values or None in values:
        return "—"
    low, high = (form.format(value) for value in values)
    return f"{low}{unit}" if low == high else f"{low}{dash}{high}{unit}"
