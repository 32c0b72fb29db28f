"""The budgets of teams and of the environment, and what is spent and will be spent, by the bill's rules."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from everspot_core.costs.attempts import attempts
from everspot_core.costs.nodes import is_billed, tenures_by_machine
from everspot_core.costs.occupancy import Tenure, in_order
from everspot_core.costs.prices import PriceBook
from everspot_core.costs.team_budgets import (
    ENVIRONMENT,
    Amount,
    Budgets,
    Commitment,
    Period,
    Unit,
    add,
    committed,
    forecast,
    spending,
    spent,
)
from everspot_core.jobs.job_archive import Dossier
from everspot_core.jobs.records import InstanceRecord
from everspot_core.schedule.admission import commitment

from everspot_cli.close_ledger import missing_entries
from everspot_cli.job_view import plain_view
from everspot_cli.session import Session, run_in_parallel
from everspot_cli.tables import money

LATELY = timedelta(days=1)
"""A forecast continues the spending of this span."""


@dataclass(frozen=True, kw_only=True)
class BudgetRow:
    """One budget in its present period. `team` is empty for the environment; `cap` is None without a cap."""

    team: str
    period: Period
    unit: Unit
    spent: float
    committed: float
    forecast: float
    cap: float | None
    begin: datetime
    until: datetime


@dataclass(frozen=True)
class BudgetReading:
    """All budgets of a cluster. `note`: why the ledger may lack the latest events."""

    budgets: Budgets
    rows: tuple[BudgetRow, ...]
    note: str | None


def read(session: Session) -> BudgetReading:
    """Return every team that has a cap or has spent something this month, and the environment."""
    note, store, now = missing_entries(session), session.store, session.now
    budgets = store.budgets()
    since = min(Period.MONTH.begin(now), now - LATELY)
    dossiers = _dossiers(session, since)
    book = PriceBook(store.prices(), session.billing_catalogue)
    daily_spending, lately, first = _spending(session, dossiers, book, since)
    going_on = _commitments(session, dossiers, book)
    span = min(LATELY, now - first) if first is not None else timedelta(0)
    rows = _rows(budgets, daily_spending, lately, going_on, span, now)
    return BudgetReading(budgets, tuple(rows), note)


def figure(value: float) -> str:
    """Return an amount for people: two digits, and more where these would hide everything."""
    return f"{value:,.2f}" if value >= 1 or value == 0 else f"{value:.4f}"


def amount(value: float, unit: Unit) -> str:
    """Return an amount of a unit for people: dollars with their sign."""
    return money(value) if unit is Unit.DOLLARS else figure(value)


def used_up(rows: Iterable[BudgetRow]) -> list[str]:
    """Return a sentence for each cap that is used up."""
    spent_ones = (row for row in rows if row.cap is not None and row.spent >= row.cap)
    return [
        f"Nothing is left for {f'team {row.team}' if row.team else 'the environment'} "
        f"until {row.until:%Y-%m-%d %H:%M} UTC: its jobs wait."
        for row in spent_ones
    ]


def _rows(
    budgets: Budgets,
    daily_spending: dict[tuple[date, str], Amount],
    lately: dict[tuple[date, str], Amount],
    going_on: list[Commitment],
    span: timedelta,
    now: datetime,
) -> Iterator[BudgetRow]:
    caps = {(team, period, unit): cap for team, period, unit, cap in budgets.limits()}
    month = Period.MONTH.begin(now).date()
    teams = {team for team, *_ in caps} | {payer for day, payer in daily_spending if day >= month}
    for team in [ENVIRONMENT, *sorted(teams - {ENVIRONMENT})]:
        for period in Period:
            begin, until = period.begin(now), period.end(now)
            used = spent(daily_spending, team, begin)
            for unit in Unit:
                cap = caps.get((team, period, unit))
                bound = committed(going_on, team, unit, now, until)
                if unit is Unit.GPU_HOURS and cap is None and not used.gpu_hours and not bound:
                    continue  # the team uses no GPUs
                of_late = spent(lately, team, now - 2 * LATELY).in_unit(unit)
                yield BudgetRow(
                    team=team,
                    period=period,
                    unit=unit,
                    spent=used.in_unit(unit),
                    committed=bound,
                    forecast=forecast(used.in_unit(unit), bound, of_late, span, until - now),
                    cap=cap,
                    begin=begin,
                    until=until,
                )


def _dossiers(session: Session, since: datetime) -> list[Dossier]:
    """Return the jobs that may have had instances since `since`."""
    store = session.store
    jobs, records = run_in_parallel(store.jobs.scan, store.records.scan)
    events = store.events_by_job(list(jobs), brief=True)
    live_dossiers = {
        job: Dossier(submission=doc.value, record=records[job].value if job in records else None, events=events[job])
        for job, doc in jobs.items()
    }
    return list((live_dossiers | store.archive.scan(since, session.now)).values())


def _spending(
    session: Session, dossiers: list[Dossier], book: PriceBook, since: datetime
) -> tuple[dict[tuple[date, str], Amount], dict[tuple[date, str], Amount], datetime | None]:
    """Return the spending by day and team since `since`, the part of it within LATELY, and the launch of the first
    instance that cost money."""
    now, store = session.now, session.store
    claims: dict[str, list[Tenure]] = defaultdict(list)
    for dossier in dossiers:
        team = dossier.submission.team
        for attempt in attempts(dossier.events, record=dossier.record):
            tenure = Tenure(team, attempt.start, attempt.end or now, attempt.share, attempt.gpus)
            claims[attempt.instance_id or ""].append(tenure)
    daily_spending: dict[tuple[date, str], Amount] = {}
    lately: dict[tuple[date, str], Amount] = {}
    first = None
    ends = {name: doc.value for name, doc in store.ends.scan().items()}
    launches = {name: doc.value for name, doc in store.launches.scan().items()}
    by_machine = tenures_by_machine(claims, launches, ends)
    for name, launch in launches.items():
        if not is_billed(launch, launches):
            continue
        ended = ends.get(name)
        if launch.launched_at >= now or (ended is not None and ended.ended_at < since):
            continue
        first = min(launch.launched_at, first or now)
        kind = session.billing_catalogue.types.get(launch.instance_type)
        gpus, rules, tenures = kind.gpus if kind else 0, session.cloud.billing, in_order(by_machine.get(name, ()))
        for into, begin in ((daily_spending, since), (lately, now - LATELY)):
            add(into, spending(launch, ended, tenures, gpus=gpus, book=book, rules=rules, since=begin, now=now))
    return daily_spending, lately, first


def _commitments(session: Session, dossiers: list[Dossier], book: PriceBook) -> list[Commitment]:
    """Return the commitments of running jobs, by the plan's own measure."""
    now, instances, assignments = session.now, session.store.instances.scan(), session.store.assignments.scan()
    commitments = []
    for dossier in dossiers:
        record = dossier.record
        owner_doc = instances.get(record.owner or "") if record is not None and record.state.owned else None
        if owner_doc is not None:
            machine = owner_doc.value
            assignment = assignments.get(machine.instance_id)
            part = assignment.value.share(dossier.job_id) if assignment is not None else 1.0
            usd = _usd_per_hour(machine, book, now) * part
            commitments.append(
                commitment(
                    plain_view(dossier.submission, dossier.record), usd, machine.gpus * part, machine.instance_type, now
                )
            )
    return commitments


def _usd_per_hour(machine: InstanceRecord, book: PriceBook, now: datetime) -> float:
    moment = now + timedelta(seconds=1)
    return float(book.segments(machine.instance_type, machine.zone, machine.market, now, moment)[0].usd_per_hour)
