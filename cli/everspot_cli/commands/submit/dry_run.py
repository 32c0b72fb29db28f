"""`everspot submit --dry-run`: what a job could run on, and what that would cost."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

from everspot_core.capacity.catalogue import Catalogue, zone_region
from everspot_core.documents import format_duration
from everspot_core.jobs.candidates import Candidate, misfits, nearest
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.schedule.provisioning.feasibility import Feasibility

from everspot_cli.commands.submit.checks import run_checks
from everspot_cli.commands.submit.context import SubmissionContext
from everspot_cli.commands.submit.deadline import deadline_row, sentence, warn
from everspot_cli.commands.submit.job_data import JobData, read_data
from everspot_cli.commands.submit.notice_fit import fit_notice
from everspot_cli.commands.submit.other_clusters import price_at_peers, print_elsewhere
from everspot_cli.commands.submit.pool_outlook import PoolFacts, as_json, is_estimate, outlook, priced_now
from everspot_cli.commands.submit.pool_outlook import cells as outlook_cells
from everspot_cli.commands.submit.pool_outlook import columns as outlook_columns
from everspot_cli.commands.submit.pool_outlook import notes as outlook_notes
from everspot_cli.errors import CliError
from everspot_cli.rows import instance_rows
from everspot_cli.session import Session
from everspot_cli.tables import NARROW, empty_table

SHOWN = 12


def dry_run(
    session: Session, file: Path, submission: JobSubmission, regions: list[str] | None, wait_for_capacity: bool
) -> None:
    """Show what the job could run on and what that costs; refuse what a submission would refuse."""
    context = SubmissionContext.read_if_chosen(session, str(file), submission, wait_for_capacity=wait_for_capacity)
    present_types, pool_facts = set[str](), PoolFacts()
    if context.cluster is not None:
        context, present_types = _with_instances(context)
        if context.fleet is not None:
            pool_facts = outlook(session, context.fleet.kinds, regions or ())
            context = replace(context, catalogue=priced_now(session, context.catalogue, pool_facts))
    if regions:
        context = replace(context, regions=regions)
    spec, catalogue, verdict = submission.spec, context.catalogue, context.feasibility
    today = datetime.now().astimezone().date()  # the age of a price is counted in real days
    data = read_data(session, submission) if context.cluster is not None else None
    peer_rows = price_at_peers(session, submission, data) if data is not None else []
    warnings, refused = run_checks(context)
    fit = fit_notice(context)
    if session.json:
        session.answer({"spec": spec.model_dump(mode="json"),
                        "candidates": [_row(c, present_types, today, pool_facts, data) for c in context.candidates],
                        "data": data.row() if data is not None else None,
                        "fits_now": sorted(t for t in present_types if _fits(catalogue, t, spec)),
                        "clusters": peer_rows, "deadline": deadline_row(verdict), "checkpoint": fit.row,
                        "warnings": warnings})  # fmt: skip
    if refused is not None and not refused.problems[0]["field"].startswith("deadline"):
        raise refused
    has_peer = any(row["usd_per_hour"] is not None for row in peer_rows[1:])  # to a peer that can hold it
    if not context.candidates and not has_peer and not any(_fits(catalogue, t, spec) for t in present_types):
        lacks = "; ".join(f"{kind.name}: {', '.join(lacking)}" for kind, lacking in nearest(spec.resources, catalogue))
        raise CliError("no instance type of the catalogue has what the job needs", hint=f"nearest: {lacks}")
    if not session.json:
        _print_candidates(session, spec, context.candidates, present_types, today, pool_facts)
        for note in data.notes(c.region for c in context.candidates) if data is not None else ():
            session.console.print(note, style="dim", soft_wrap=True)
        print_elsewhere(session, submission, peer_rows)
        warn(session, warnings)
        if fit.note:
            session.console.print(fit.note, soft_wrap=True)
        _print_deadline(session, verdict)
    if refused is not None:
        session.console.print()  # below the table it has to be seen
        words = f"{refused}: it would not be submitted"
        raise CliError(words, refused.code, hint=refused.hint, problems=refused.problems)


def _with_instances(context: SubmissionContext) -> tuple[SubmissionContext, set[str]]:
    """Return the context with the region of the present instances, where the cluster names none, and their types."""
    live = [row for row in instance_rows(context.session) if row["role"] == "agent"]
    if not context.session.manifest.region:
        region = next((zone_region(row["zone"]) for row in live), "")
        context = replace(context, regions=[region] if region in context.catalogue.regions else None)
    return context, {row["instance_type"] for row in live}


def _print_deadline(session: Session, verdict: Feasibility | None) -> None:
    if verdict is not None and verdict.feasible:
        session.console.print(sentence(verdict), soft_wrap=True)
        if session.scale_note():
            session.console.print(session.scale_note(), style="dim", soft_wrap=True)


def _fits(catalogue: Catalogue, name: str, spec: JobSpec) -> bool:
    return name in catalogue.types and not misfits(catalogue.types[name], spec.resources)


def _row(
    candidate: Candidate, present_types: set[str], today: date, pool_facts: PoolFacts, data: JobData | None
) -> dict[str, Any]:
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
        "in_cluster": kind.name in present_types,
        "egress_usd": data.usd_to(candidate.region) if data is not None else None,
        "price_as_of": str(dated.as_of) if dated and dated.as_of else None,
        "price_age": dated.age(today) if dated else None,
        "price_source": dated.source if dated else None,
        **as_json(candidate, pool_facts),
    }


def _print_candidates(
    session: Session,
    spec: JobSpec,
    candidate_list: list[Candidate],
    present_types: set[str],
    today: date,
    pool_facts: PoolFacts,
) -> None:
    expected = format_duration(spec.expected_duration) if spec.expected_duration else None
    wide = session.console.width >= NARROW
    ordered = sorted(candidate_list, key=lambda c: c.instance_type.name not in present_types)[
        :SHOWN
    ]  # types with present instances first
    columns = ["TYPE", "REGION", "VCPU", "GIB", "SPOT\n$/H", "ON-DEMAND\n$/H", "SAVES"]
    if expected:
        columns += [f"SPOT $\nFOR {expected}", f"ON-DEMAND $\nFOR {expected}"]
    more = outlook_columns(ordered, pool_facts)
    rows = [_cells(candidate, present_types, " to " if wide else "-", bool(expected)) for candidate in ordered]
    for row, candidate in zip(rows, ordered, strict=True):
        pool_cells = outlook_cells(candidate, pool_facts, more)
        if wide:
            row += pool_cells
        else:
            row[0] += "".join(f"\n  {name.lower()} {cell}" for name, cell in zip(more, pool_cells, strict=True))
    columns += more if wide else []
    # In a narrow terminal, a region that all rows share is printed below the table.
    shown_columns = [n for n in range(len(columns)) if n != 1 or wide or len({row[1] for row in rows}) > 1]
    table = empty_table(
        [columns[n] for n in shown_columns], text_columns=sum(n < 2 for n in shown_columns), fold=("TYPE",)
    )
    for row in rows:
        table.add_row(*(row[n] for n in shown_columns))
    session.console.print(table)
    _footnotes(session, ordered, len(candidate_list), present_types, today, pool_facts)


def _cells(candidate: Candidate, present_types: set[str], dash: str, expected: bool) -> list[str]:
    kind, spot, listed = candidate.instance_type, candidate.spot, candidate.on_demand
    saves = [100 * (1 - p.usd_per_hour / listed.usd_per_hour) for p in reversed(spot)] if spot and listed else []
    more = " ".join([*([f"{kind.gpus} {kind.gpu}"] if kind.gpus else []), *([kind.arch] * (kind.arch != "x86_64"))])
    about = "~" if is_estimate(candidate) else ""
    cells = [
        kind.name + (" *" if kind.name in present_types else "") + (f"\n  {more}" if more else ""),
        candidate.region,
        str(kind.vcpus),
        f"{kind.memory_gib:g}",
        about + _span([p.usd_per_hour for p in spot] if spot else None, dash),
        f"{listed.usd_per_hour:.4f}" if listed else "—",
        _span(saves, dash, "{:.0f}", " %"),
    ]
    if expected:
        cells += [
            about * bool(candidate.spot_cost) + _span(candidate.spot_cost, dash),
            _span([candidate.on_demand_cost] * 2, dash),
        ]
    return cells


def _footnotes(
    session: Session, shown: list[Candidate], count: int, present_types: set[str], today: date, pool_facts: PoolFacts
) -> None:
    prices = [p for c in shown for p in (c.on_demand, *(c.spot or ())) if p is not None]
    sources = sorted({(p.source, p.age(today)) for p in prices})
    regions = sorted({c.region for c in shown})
    where = f" in {regions[0]}" if len(regions) == 1 else ""
    notes = [f"Shown {len(shown)} of {count} candidates{where}. Nothing was submitted."]
    notes.append("Spot prices from the cheapest to the most expensive zone; no interruption is reckoned with.")
    if any(c.instance_type.name in present_types for c in shown):
        notes.append("* runs in the cluster now")
    notes += [*outlook_notes(session, shown, pool_facts), *(f"Prices: {source}, {age}." for source, age in sources)]
    session.console.print("\n".join(notes), style="dim")


def _span(values: Sequence[float | None] | None, dash: str, form: str = "{:.4f}", unit: str = "") -> str:
    """From the lowest to the highest zone of the region; `—` if it is not known."""
    if not values or None in values:
        return "—"
    low, high = (form.format(value) for value in values)
    return f"{low}{unit}" if low == high else f"{low}{dash}{high}{unit}"
