"""Checks that need only the store: it exists, its conditional writes work, scheduler and instances are alive."""

import secrets
from collections.abc import Callable
from functools import partial

from everspot_core.capacity.catalogue import Price
from everspot_core.capacity.price_table import STALE, unlisted
from everspot_core.costs.nodes import list_emptied
from everspot_core.counting import counted
from everspot_core.jobs.records import Reason
from everspot_core.schedule.provisioning.suspension import PROVEN, suspended_types
from everspot_store import Bucket, StoreDenied, StoreError, Version, WriteOutcome, WriteResult
from everspot_store.bucket import ATTEMPTS

from everspot_cli.checks import Check, Verdict
from everspot_cli.checks.federation import peers_check
from everspot_cli.errors import of_store
from everspot_cli.queue import job_rows
from everspot_cli.rows import SCHEDULER_SILENT, instance_rows, read_suspects
from everspot_cli.session import Session, run_in_parallel


def cluster_checks(session: Session) -> list[Check]:
    """Make the checks in order. If the cluster's description cannot be read, no further check is made. Failures that
    follow from a failure of the store are not reported."""
    first = _run_check(session, "cluster.json", _manifest)
    if first.verdict is Verdict.FAIL:
        return [first]
    further_checks = (
        ("conditional writes", _conditional_writes),
        ("scheduler", _scheduler),
        ("instances", _instances),
        ("faults", _faults),
        ("queue", _queue),
        ("peers", peers_check),
        ("prices", _prices),
    )
    checks = [first, *run_in_parallel(*(partial(_run_check, session, name, check) for name, check in further_checks))]
    failed = [c.verdict is Verdict.FAIL and c.group in ("store", "credentials") for c in checks]
    return checks[: failed.index(True) + 1] if True in failed else checks


def _run_check(session: Session, name: str, check: Callable[[Session], Check]) -> Check:
    try:
        return check(session)
    except StoreError as error:
        cli_error = of_store(error, session.store_url)
        group = "credentials" if isinstance(error, StoreDenied) else "store"
        return Check(group, name, Verdict.FAIL, str(cli_error), cli_error.hint)


def _manifest(session: Session) -> Check:
    manifest = session.manifest
    where = f"cluster {manifest.cluster} on {manifest.cloud} {manifest.region}".rstrip()
    return Check("store", "cluster.json", Verdict.OK, f"{where}, data in {manifest.data_url}")


def _conditional_writes(session: Session) -> Check:
    """Try conditional writes on a key of its own: a create, a second create that must fail, a replacement, and a stale
    replacement that must fail."""
    control, key = session.store.control, f"doctor/{secrets.token_hex(8)}.json"
    try:
        first = control.create(key, b'{"n": 1}')
        again = _patiently(control, lambda: control.create(key, b'{"n": 2}'))
        old = first.version or Version("")
        second = _patiently(control, lambda: control.replace(key, b'{"n": 3}', old))
        stale = _patiently(control, lambda: control.replace(key, b'{"n": 4}', old))
    finally:
        control.delete(key)
    outcomes = [result.outcome for result in (first, again, second, stale)]
    right = [WriteOutcome.DONE, WriteOutcome.LOST, WriteOutcome.DONE, WriteOutcome.LOST]
    if outcomes == right:
        return Check("store", "conditional writes", Verdict.OK, "create and replace are kept")
    words = ", ".join(outcome.value for outcome in outcomes)
    if any(outcome in (WriteOutcome.CONFLICT, WriteOutcome.BUSY, WriteOutcome.UNKNOWN) for outcome in outcomes):
        return Check("store", "conditional writes", Verdict.WARN, f"unclear: {words}", "ask again in a minute")
    fix = "this store cannot hold a cluster: two owners could both believe they won"
    return Check("store", "conditional writes", Verdict.FAIL, f"not kept: {words}", fix)


def _patiently(control: Bucket, write: Callable[[], WriteResult]) -> WriteResult:
    """Make one write, and try again if the store refuses so many writes to one key."""
    result = write()
    for attempt in range(1, ATTEMPTS):
        if result.outcome is not WriteOutcome.BUSY:
            break
        control.pause(attempt, busy=True)
        result = write()
    return result


def _scheduler(session: Session) -> Check:
    beats = [doc.value for doc in session.store.schedulers.scan().values()]
    if not beats:
        fix = "running jobs run on, nothing new starts; does its group in the cloud, which keeps one, have an instance?"
        return Check("cluster", "scheduler", Verdict.FAIL, "none has ever written a heartbeat", fix)
    last = max(beats, key=lambda beat: beat.updated_at)
    silent = session.clock.to_real(session.now - last.updated_at)
    summary = f"{last.scheduler_id}, last heard {silent.total_seconds():.0f} s ago"
    if silent > SCHEDULER_SILENT:
        fix = "running jobs run on, nothing new starts; its group replaces it when its health check fails"
        return Check("cluster", "scheduler", Verdict.FAIL, f"silent: {summary}", fix)
    return Check("cluster", "scheduler", Verdict.OK, summary)


def _instances(session: Session) -> Check:
    rows = [row for row in instance_rows(session) if row["role"] == "agent"]
    silent = [row["instance_id"] for row in rows if row["state"] == "SILENT"]
    states = ", ".join(f"{sum(r['state'] == s for r in rows)} {s}" for s in sorted({r["state"] for r in rows}))
    if silent:
        fix = "their jobs are requeued when their leases expire; look at their system log"
        return Check("cluster", "instances", Verdict.WARN, f"silent: {', '.join(silent)}; {states}", fix)
    if emptied := _emptied_nodes(session):
        fix = "delete the pods of others on them: empty nodes are ended"
        detail = f"no agent has run for 5 minutes on {', '.join(emptied)}: nodes that cost money"
        return Check("capacity", "instances", Verdict.WARN, f"{states}; {detail}" if states else detail, fix)
    if rows:
        return Check("cluster", "instances", Verdict.OK, states)
    if session.manifest.elastic is not None and session.manifest.standing is None:
        waiting = [row["job_id"] for row in job_rows(session).rows if row["status"] in ("PENDING", "RECOVERING")]
        if not waiting:
            return Check("capacity", "instances", Verdict.OK, "none is alive, and no job waits for one")
        fix = f"everspot job {waiting[0]} says what it waits for"
        return Check("capacity", "instances", Verdict.WARN, f"none is alive, and jobs wait: {len(waiting)}", fix)
    fix = "is the fleet's target above 0? the capacity and quota checks say more"
    return Check("capacity", "instances", Verdict.WARN, "none is alive", fix)


def _emptied_nodes(session: Session) -> list[str]:
    """Return the nodes on which no agent has run for a while."""
    launches = {name: document.value for name, document in session.store.launches.scan().items()}
    if not any(launch.node for launch in launches.values()):
        return []
    ends = {name: document.value for name, document in session.store.ends.scan().items()}
    return [machine.instance_id for machine in list_emptied(launches, ends, session.now)]


def _prices(session: Session) -> Check:
    """Check the age of the prices that deadlines, budgets and reports use."""
    tables, fix = session.price_tables, "everspot cost prices refresh"
    if not tables:
        days = sorted({p.as_of for p in _list_prices(session) if p.as_of is not None})
        since = f"the catalogue's own of {days[0]}" if days else "the catalogue's own"
        old = not days or session.now.date() - days[0] > STALE
        return Check("cluster", "prices", Verdict.WARN if old else Verdict.OK, since, fix if old else "")
    table = tables[-1]
    summary = f"of {table.as_of:%Y-%m-%d}, {counted(len(table.prices), 'type')} in {table.region}"
    if table.region != session.manifest.region:
        return Check("cluster", "prices", Verdict.WARN, f"{summary}: another region than the cluster's", fix)
    if table.age(session.now) > STALE:
        return Check("cluster", "prices", Verdict.WARN, f"{summary}: older than {STALE.days} days", fix)
    days = unlisted(session.catalogue, table)
    if days:
        summary += f", Spot alone; on-demand prices are the catalogue's of {days[0]}"
    if days and session.now.date() - days[0] > STALE:
        fix = f"{fix}, where the price lists have them; else a stack declares onDemandUsdPerHour with its types"
        return Check("cluster", "prices", Verdict.WARN, summary, fix)
    return Check("cluster", "prices", Verdict.OK, summary)


def _list_prices(session: Session) -> list[Price]:
    catalogue, region = session.catalogue, session.manifest.region
    prices = (catalogue.on_demand(name, region) for name in catalogue.offered(region))
    return [price for price in prices if price is not None]


def _suspensions(session: Session) -> list[str]:
    """Return the reasons why the scheduler does not launch some of the types that it may launch."""
    manifest = session.manifest
    faults = [document.value for document in session.store.faults.scan().values()]
    if manifest.elastic is None or not faults:
        return []
    proven = {
        row["instance_type"]
        for row in instance_rows(session)
        if row["state"] in ("READY", "BUSY") and row["age_seconds"] >= PROVEN.total_seconds()
    }
    suspended = suspended_types(faults, proven, manifest.generation, session.now)
    return [suspension.message for name, suspension in suspended.items() if name in manifest.elastic.types]


def _faults(session: Session) -> Check:
    suspensions = _suspensions(session)
    if suspensions:
        fix = "read the agents' logs (console, `agents/` of the data bucket), fix the image and bake it again"
        return Check("cluster", "faults", Verdict.FAIL, "; ".join(suspensions), fix)
    suspects = read_suspects(session)
    words = "; ".join(suspect.words for suspect in suspects)
    if any(suspect.grave for suspect in suspects):
        fix = "read the agents' logs (console, `agents/` of the data bucket); bake the image again or open its egress"
        return Check("cluster", "faults", Verdict.FAIL, words, fix)
    if suspects:
        fix = (
            "such machines leave by themselves and are replaced; their reasons stay in `faults/` of the control bucket"
        )
        return Check("cluster", "faults", Verdict.WARN, words, fix)
    return Check("cluster", "faults", Verdict.OK, "no instance was of no use in the last day")


def _queue(session: Session) -> Check:
    rows = job_rows(session).rows
    counts = ", ".join(f"{sum(r['status'] == s for r in rows)} {s}" for s in sorted({r["status"] for r in rows}))
    failed = [row for row in rows if row["state"] == "FAILED"]
    if session.store.drain_request() is not None:
        return Check(
            "cluster", "queue", Verdict.WARN, f"drained, nothing starts; {counts}", "everspot cluster drain --undo"
        )
    denied = [row for row in rows if row["last_reason"] == Reason.DENIED.value and row["owner"] is None]
    if denied:
        job, detail = denied[0]["job_id"], denied[0]["detail"].partition("\n")[0]
        fix = "grant the permission: waiting jobs are tried again, and `everspot retry` takes up a failed one"
        words = detail if denied[0]["state"] == "FAILED" else f"is denied what it needs: {detail}"
        return Check("user", "queue", Verdict.WARN, f"{counts}; {job} {words}", fix)
    if failed:
        fix = f"the job's own error, not the cluster's: everspot logs {failed[0]['job_id']}"
        return Check("user", "queue", Verdict.WARN, counts, fix)
    return Check("cluster", "queue", Verdict.OK, counts or "no jobs")
