"""Submits a probe job for each market of a cluster, waits for all of them, and reads what they prove."""

import json
import secrets
import tempfile
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

from everspot_core.capacity.launching import LaunchError, LaunchOutcome, LaunchTrouble
from everspot_core.capacity.market import Market
from everspot_core.cluster.preflight import ProbeFacts
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import JobState

from everspot_cli import waiting
from everspot_cli.commands.submit.command import send
from everspot_cli.errors import CliError
from everspot_cli.job_lookup import read_record
from everspot_cli.requests import ask_cancel, user
from everspot_cli.session import Session

POLL = timedelta(seconds=2)
NEEDS_PERSON = frozenset({LaunchTrouble.CREDENTIALS, LaunchTrouble.REQUEST})
PROGRAM = Path(__file__).parent / "program.py.txt"
REPORT = "probe.json"


def run_probes(session: Session, timeout: timedelta) -> list[ProbeFacts]:
    """Run a probe in each market of the cluster.

    Every probe ends: one that has not ended within `timeout`, real time, is cancelled, and so are all of them if
    something goes wrong here. Its instance ends after its idle limit or, if no agent reported, at its boot deadline.

    Raises:
        CliError: if the cluster declares no capacity.
    """
    submissions: dict[Market, JobSubmission] = {}
    end = session.clock.monotonic() + timeout
    try:
        for market in _markets(session):
            submissions[market] = _submit(session, market)
        with session.progress("waiting for the probes", shown=True):
            while _hopeful(session, submissions.values()) and session.clock.monotonic() < end:
                session.clock.sleep(min(POLL, max(end - session.clock.monotonic(), timedelta(0))))
        return [_read_facts(session, market, submission) for market, submission in submissions.items()]
    finally:
        for submission in _pending(session, submissions.values()):
            ask_cancel(session, submission)


def _markets(session: Session) -> list[Market]:
    """Return the markets in which the cluster has instances, or launches them."""
    offer = session.manifest.fleet or session.manifest.elastic
    if offer is None or not offer.markets:
        raise CliError("the cluster declares no capacity that could be probed", hint="pulumi up")
    return [market for market in Market if market in offer.markets]


def _submit(session: Session, market: Market) -> JobSubmission:
    """Submit a probe. Critical jobs are launched on-demand, normal ones without a deadline on Spot."""
    offer, types = session.manifest.fleet or session.manifest.elastic, session.catalogue.types
    names = offer.types if offer is not None else []
    gpus = 1 if names and all(name in types and types[name].gpus for name in names) else 0
    with tempfile.TemporaryDirectory(prefix="everspot-probe-") as folder:
        (Path(folder) / "probe.py").write_text(PROGRAM.read_text(encoding="utf-8"), encoding="utf-8")
        spec = JobSpec.model_validate(
            {
                "name": f"preflight-{market.value}",
                "entrypoint": ["probe.py"],
                "code": folder,
                "resources": {"gpus": gpus},
                "env": {"PROBE_GPUS": str(gpus)},
                "priority": "critical" if market is Market.ON_DEMAND else "normal",
                "retries": {"errors": 0},
            }
        )
        submission = JobSubmission(
            job_id=f"{spec.name}-{secrets.token_hex(4)}",
            spec=spec,
            submitted_at=session.submission_time,
            submitted_by=user(),
        )
        return send(session, submission)


def _pending(session: Session, submissions: Collection[JobSubmission]) -> list[JobSubmission]:
    return [each for each in submissions if not _state(session, each).final]


def _hopeful(session: Session, submissions: Collection[JobSubmission]) -> bool:
    """Return whether a probe may still end: one whose launch needs a person first does not."""
    return any(not _needs_person(session, each.job_id) for each in _pending(session, submissions))


def _needs_person(session: Session, job_id: str) -> bool:
    return any(error.kind in NEEDS_PERSON and not error.unresolved for error in _refusals(session, job_id))


def _outcomes(session: Session, job_id: str) -> list[LaunchOutcome]:
    """Return what became of a job's launches."""
    intents = [doc.value for doc in session.store.launching.scan().values() if job_id in doc.value.jobs]
    return [intent.outcome for intent in intents if intent.outcome is not None]


def _refusals(session: Session, job_id: str) -> list[LaunchError]:
    """Return the cloud's refusals of a job's launches."""
    return [error for outcome in _outcomes(session, job_id) for error in outcome.errors]


def _state(session: Session, submission: JobSubmission) -> JobState:
    record = read_record(session, submission.job_id)
    return record.state if record is not None else JobState.PENDING


def _read_facts(session: Session, market: Market, submission: JobSubmission) -> ProbeFacts:
    store, job_id = session.store, submission.job_id
    record = read_record(session, job_id)
    owner = (record.owner or record.last_owner) if record is not None else None
    instance = store.instances.get(owner) if owner else None
    state = record.state if record is not None else JobState.PENDING
    outcomes = _outcomes(session, job_id)
    errors = [error for outcome in outcomes for error in outcome.errors]
    return ProbeFacts(
        market=market,
        job_id=job_id,
        state=state,
        instance=instance.value if instance is not None else None,
        launched=tuple(each.instance_id for outcome in outcomes for each in outcome.instances if each.job_id == job_id),
        refusals=tuple(dict.fromkeys(f"{error.code}: {error.message}" for error in errors)),
        troubles=frozenset(error.kind for error in errors),
        waits_because="" if state is not JobState.PENDING else waiting.read(session, [job_id]).because(job_id)[0],
        failure=record.detail if record is not None else "",
        gpus=submission.spec.resources.gpus,
        report=_read_report(session, job_id),
    )


def _read_report(session: Session, job_id: str) -> dict[str, object] | None:
    """Return the report that a probe has left, or None."""
    outputs = session.store.outputs(job_id)
    with tempfile.TemporaryDirectory(prefix="everspot-probe-") as folder:
        for output in outputs.list(REPORT):
            outputs.fetch(output, Path(folder))
            report: dict[str, object] = json.loads((Path(folder) / REPORT).read_text(encoding="utf-8"))
            return report
    return None
