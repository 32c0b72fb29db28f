"""Updates environments after the merge: only to the reviewed state, and by the rules.

Each environment is previewed again:

- A preview that is refused ends the command with exit code 1.
- Without anything to do, it ends with 0.
- A change that was applied already, is superseded, or differs from the review is not applied; the exit code is 3.
- Otherwise the environment is updated. The comment then has the result, and the remaining steps of a failed update,
  which a later run does. If the update did anything else than was reviewed, the exit code is 3.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from everspot_core.counting import first_few

from everspot_review.comment_state import CommentState, minute
from everspot_review.deviations import list_deviations
from everspot_review.engine import PREVIEW_TIMEOUT, UPDATE_TIMEOUT, Ended, Engine
from everspot_review.errors import ReviewError, ReviewExit
from everspot_review.event_log import EventLog
from everspot_review.events import EventLogError, read_file
from everspot_review.forge import Forge
from everspot_review.locks import Here, Lock, describe_locks, left_by_this_repository, locked, parse_locks
from everspot_review.previewing import LoggedPreview, Revisions, preview_with_log
from everspot_review.refusals import ForgeError
from everspot_review.remaining_steps import RemainingSteps, compute_remaining, unknown
from everspot_review.report import EnvironmentReport
from everspot_review.values import masked

CLOCK_TOLERANCE = timedelta(minutes=5)
"""How far the clocks of a runner and of the forge may be apart."""

QUOTED_CHARACTERS = 2_000
"""Characters of the engine's last output that the report of a failed update quotes."""

_SHOWN = 5
"""Steps and values that were not reviewed, of which a message names so many."""


class ApplyResult(StrEnum):
    """The result of applying one environment.

    SUPERSEDED: something that came after this revision was applied. DEVIATED: the update did something that the
    preview before it did not show, such as to launch an image that was published in between.
    """

    UNCHANGED = "unchanged"
    UPDATED = "updated"
    DEVIATED = "updated, but not as reviewed"
    REFUSED = "refused"
    NOT_REVIEWED = "not reviewed"
    ALREADY = "applied already"
    SUPERSEDED = "superseded"
    LOCKED = "locked"
    FAILED = "failed"

    @property
    def exit(self) -> ReviewExit:
        """How the command ends."""
        return _EXITS[self]

    @property
    def goes_on(self) -> bool:
        """Whether `apply` continues with the next environment, which may depend on this one."""
        return self.exit is ReviewExit.OK or self in (ApplyResult.ALREADY, ApplyResult.SUPERSEDED)


_EXITS = {
    ApplyResult.UNCHANGED: ReviewExit.OK,
    ApplyResult.UPDATED: ReviewExit.OK,
    ApplyResult.DEVIATED: ReviewExit.NOT_REVIEWED,
    ApplyResult.REFUSED: ReviewExit.REFUSED,
    ApplyResult.NOT_REVIEWED: ReviewExit.NOT_REVIEWED,
    ApplyResult.ALREADY: ReviewExit.NOT_REVIEWED,
    ApplyResult.SUPERSEDED: ReviewExit.NOT_REVIEWED,
    ApplyResult.LOCKED: ReviewExit.LOCKED,
    ApplyResult.FAILED: ReviewExit.REFUSED,
}


@dataclass(frozen=True)
class ApplyOutcome:
    """The result of applying one environment.

    Attributes:
        environment: The environment's name.
        status: The kind of result.
        message: A sentence for the reader.
        report: The report of the preview before the update.
        remaining: The steps that a failed update has left.
        continued: Whether the update applied such remaining steps.
    """

    environment: str
    status: ApplyResult
    message: str
    report: EnvironmentReport
    remaining: RemainingSteps | None = None
    continued: bool = False


@dataclass(frozen=True)
class PriorState:
    """The state of an environment before it is applied.

    Attributes:
        comment_state: The comment's entry for this revision.
        reason: A sentence on why the preview may differ from the review; empty if it may not.
        superseded_by: Returns why this revision must not be applied any longer; empty if nothing speaks against it.
    """

    comment_state: CommentState | None = None
    reason: str = ""
    superseded_by: Callable[[], str] = str


@dataclass(frozen=True)
class WorkflowRun:
    """The run of a CI workflow that this process belongs to.

    Attributes:
        began: When the run began.
        forge: The forge where it runs; None on a person's machine.
        run: The run's number; 0 on a person's machine.
    """

    began: datetime
    forge: Forge | None = field(default=None, repr=False)
    run: int = 0

    @classmethod
    def here(cls, forge: Forge | None, now: datetime) -> "WorkflowRun":
        """Return the run by the variables that a runner sets."""
        number = os.environ.get("GITHUB_RUN_ID", "")
        return cls(now, forge, int(number) if number.isdecimal() else 0)

    def others(self, locks: Sequence[Lock]) -> list[int] | None:
        """Other runs of this repository that may hold one of the locks, since they were there when it was taken; None
        if that cannot be known."""
        if self.forge is None or not self.run or not locks:
            return None
        try:
            return self.forge.other_runs(self.run, max(lock.since for lock in locks) + CLOCK_TOLERANCE)
        except (ForgeError, KeyError, TypeError, ValueError):
            return None


def apply(
    engine: Engine,
    environment: str,
    reviewed: str,
    workflow: WorkflowRun,
    revisions: Revisions | None = None,
    limits: tuple[timedelta, timedelta] = (PREVIEW_TIMEOUT, UPDATE_TIMEOUT),
    report_line: Callable[[str], None] = lambda _: None,
    prior: PriorState | None = None,
) -> ApplyOutcome:
    """Update an environment, if the update would do the reviewed steps, or those of them that a failed update has left.

    Args:
        engine: The engine.
        environment: Its name.
        reviewed: The digest of the reviewed preview, empty if there was none.
        workflow: The run of the workflow.
        revisions: The revisions of the change.
        limits: Of preview and update.
        report_line: Gets each sentence when it is known.
        prior: The state of the environment before.

    Raises:
        EngineError: if the engine cannot be run.
    """
    known_revisions, before = revisions or Revisions(), prior or PriorState()
    state = before.comment_state
    logged = preview_with_log(engine, environment, known_revisions, limits[0])
    report = logged.report
    if report.blocked:
        return ApplyOutcome(environment, ApplyResult.REFUSED, f"{environment}: {_refusal(report)}", report)
    if not report.steps and report.outcome.value == "unchanged":
        return ApplyOutcome(environment, ApplyResult.UNCHANGED, f"{environment}: nothing to do", report)
    if newer := before.superseded_by():
        return ApplyOutcome(environment, ApplyResult.SUPERSEDED, f"{environment}: not applied: {newer}", report)
    if state is not None and state.applied:
        message = f"{environment}: applied already at {state.at}; another change needs a pull request of its own"
        return ApplyOutcome(environment, ApplyResult.ALREADY, message, report)
    if not reviewed or report.digest not in {reviewed, state.rest if state is not None else reviewed}:
        message = _explain_difference(environment, report.digest, reviewed, before.reason)
        return ApplyOutcome(environment, ApplyResult.NOT_REVIEWED, message, report)
    if continued := report.digest != reviewed:
        report_line(f"{environment}: goes on with the rest of {known_revisions.head[:12]}, whose update failed")
    done = replace(_update(engine, environment, workflow, logged, limits[1], report_line), continued=continued)
    return (
        replace(done, remaining=_preview_remaining(engine, logged, known_revisions, limits[0]))
        if done.status is ApplyResult.FAILED
        else done
    )


def _preview_remaining(
    engine: Engine, reviewed: LoggedPreview, revisions: Revisions, limit: timedelta
) -> RemainingSteps:
    """Return the remaining steps of a failed update, by a preview right after it."""
    try:
        return compute_remaining(reviewed, preview_with_log(engine, reviewed.report.environment, revisions, limit))
    except ReviewError as error:
        return unknown(reviewed.report.environment, masked(str(error)))


def _update(
    engine: Engine, environment: str, workflow: WorkflowRun, logged: LoggedPreview, limit: timedelta,
    report_line: Callable[[str], None],
) -> ApplyOutcome:  # fmt: skip
    here, report = Here.own(), logged.report
    ended, deviations = _up(engine, environment, limit, logged.log)
    if ended.code and locked(ended.output):
        locks = parse_locks(ended.output)
        if not left_by_this_repository(locks, here, workflow.began, workflow.others(locks)):
            return ApplyOutcome(environment, ApplyResult.LOCKED, describe_locks(environment, locks, here), report)
        report_line(f"{environment}: freed the lock that an earlier run of this repository left: {locks[0].holder}")
        engine.cancel(environment)
        ended, deviations = _up(engine, environment, limit, logged.log)
        if ended.code and locked(ended.output):  # somebody else was faster
            message = describe_locks(environment, parse_locks(ended.output), here)
            return ApplyOutcome(environment, ApplyResult.LOCKED, message, report)
    unreviewed = f"the update did what was not reviewed: {first_few(deviations, _SHOWN)}"
    if ended.code == 0 and deviations:
        message = f"{environment}: {unreviewed}. Everything is applied: undo it by another pull request, if need be"
        return ApplyOutcome(environment, ApplyResult.DEVIATED, message, report)
    if ended.code == 0:
        done = f"{environment}: updated, {len(report.steps)} resources changed, digest {report.digest[:12]}"
        return ApplyOutcome(environment, ApplyResult.UPDATED, done, report)
    if ended.killed:
        _free_lock(engine, environment, here, ended.pid)
    also = f" ({unreviewed})" if deviations else ""
    return ApplyOutcome(
        environment, ApplyResult.FAILED, f"{environment}: the update failed{also}: {_last_output(ended)}", report
    )


def _free_lock(engine: Engine, environment: str, here: Here, pid: int) -> None:
    """Free the lock of an engine that had to be killed; nobody else's."""
    locks = parse_locks(engine.holders(environment))
    if locks and all((lock.host, lock.pid) == (here.host, pid) for lock in locks):
        engine.cancel(environment)


def _up(engine: Engine, environment: str, limit: timedelta, reviewed: EventLog) -> tuple[Ended, list[str]]:
    """Run an update, and return its end and what it did that was not reviewed."""
    with TemporaryDirectory(prefix="everspot-review-") as folder:
        log = Path(folder) / "events.jsonl"
        ended = engine.up(environment, log, limit)
        try:
            return ended, list_deviations(reviewed, read_file(log))
        except EventLogError as error:
            return ended, [f"its event log cannot be read ({error})"]


def _last_output(ended: Ended) -> str:
    return masked(ended.output[-QUOTED_CHARACTERS:].strip()) or f"exit code {ended.code}"


def _refusal(report: EnvironmentReport) -> str:
    rules = [f"{rule.rule} ({rule.resource}): {rule.message}" for rule in report.rules if rule.stops]
    errors = [diagnostic.text for diagnostic in report.diagnostics if diagnostic.severity == "error"]
    return "; ".join([*(f"rule broken: {text}" for text in rules), *errors])[:QUOTED_CHARACTERS] or "the preview failed"


def _explain_difference(environment: str, now: str, reviewed: str, reason: str) -> str:
    if not reviewed:
        reason = reason or "no comment of ours has its digest"
        return f"{environment}: what would happen now ({now[:12]}) was not reviewed: {reason}"
    if reason:
        return f"{environment}: what would happen now ({now[:12]}) is not what was reviewed ({reviewed[:12]}): {reason}"
    return (
        f"{environment}: what would happen now ({now[:12]}) is not what was reviewed ({reviewed[:12]}). Something else "
        f"was applied in between, somebody changed the environment by hand, or a value that is looked up, such as the "
        f"newest image, has changed. Open a pull request again to see it"
    )


def stamp(outcome: ApplyOutcome, now: datetime) -> str:
    """Return the line on an environment in the comment."""
    sign = "✅" if outcome.status.exit is ReviewExit.OK else "🛑"
    went_on = f", went on with the rest of {outcome.report.head[:12]}" if outcome.continued else ""
    return f"- {sign} **{outcome.environment}**: {outcome.status.value} at {minute(now)}{went_on}"


_CHANGES_STATE = frozenset({ApplyResult.UPDATED, ApplyResult.DEVIATED, ApplyResult.UNCHANGED, ApplyResult.FAILED})


def next_comment_state(outcome: ApplyOutcome, now: datetime, before: CommentState | None) -> CommentState | None:
    """Return the next entry of our comment for an environment. `before`: the present entry."""
    revision = outcome.report.head
    if not revision or outcome.status not in _CHANGES_STATE:
        return before
    if outcome.status is not ApplyResult.FAILED:
        return CommentState(revision, minute(now))
    return (
        CommentState(revision, minute(now), outcome.remaining.digest)
        if outcome.remaining and outcome.remaining.digest
        else None
    )
