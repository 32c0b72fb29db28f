"""Updates environments after the merge: only to the reviewed state, and by the rules.

preview again → refused: exit 1 │ nothing to do: exit 0 │ applied already, superseded, or not as reviewed: exit 3 →
update → reported in the comment; of a failed update also the remaining steps, which a later run does
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from everspot_review.comment_state import CommentState, minute
from everspot_review.engine import PREVIEWED_IN, UPDATED_IN, Ended, Engine
from everspot_review.errors import ReviewError, ReviewExit
from everspot_review.forge import Forge
from everspot_review.locks import Here, Lock, describe_locks, left_by_this_repository, locked, parse_locks
from everspot_review.previewing import Revisions, preview
from everspot_review.refusals import ForgeError
from everspot_review.remaining_steps import RemainingSteps, compute_remaining, unknown
from everspot_review.report import EnvironmentReport
from everspot_review.values import masked

CLOCKS = timedelta(minutes=5)
"""How far the clocks of a runner and of the forge may be apart."""

TOLD = 2_000
"""Characters of the engine's last output that the report of a failed update quotes."""


class Applied(StrEnum):
    """The result of applying one environment. SUPERSEDED: something that came after this revision was applied."""

    UNCHANGED = "unchanged"
    UPDATED = "updated"
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
        """Whether the next environments are looked at: they may refer to this one, which has to be as declared then."""
        return self.exit is ReviewExit.OK or self in (Applied.ALREADY, Applied.SUPERSEDED)


_EXITS = {
    Applied.UNCHANGED: ReviewExit.OK,
    Applied.UPDATED: ReviewExit.OK,
    Applied.REFUSED: ReviewExit.REFUSED,
    Applied.NOT_REVIEWED: ReviewExit.NOT_REVIEWED,
    Applied.ALREADY: ReviewExit.NOT_REVIEWED,
    Applied.SUPERSEDED: ReviewExit.NOT_REVIEWED,
    Applied.LOCKED: ReviewExit.LOCKED,
    Applied.FAILED: ReviewExit.REFUSED,
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
    status: Applied
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
class Workflow:
    """The run of a workflow that this is, as far as there is one. `began`: when it began; `forge`: where it runs, None
    on a person's machine; `run`: its number."""

    began: datetime
    forge: Forge | None = field(default=None, repr=False)
    run: int = 0

    @classmethod
    def here(cls, forge: Forge | None, now: datetime) -> "Workflow":
        """Return the run by the variables that a runner sets."""
        number = os.environ.get("GITHUB_RUN_ID", "")
        return cls(now, forge, int(number) if number.isdecimal() else 0)

    def others(self, locks: Sequence[Lock]) -> list[int] | None:
        """Other runs of this repository that may hold one of the locks, since they were there when it was taken; None
        if that cannot be known."""
        if self.forge is None or not self.run or not locks:
            return None
        try:
            return self.forge.other_runs(self.run, max(lock.since for lock in locks) + CLOCKS)
        except (ForgeError, KeyError, TypeError, ValueError):
            return None


def apply(
    engine: Engine,
    environment: str,
    reviewed: str,
    workflow: Workflow,
    revisions: Revisions | None = None,
    limits: tuple[timedelta, timedelta] = (PREVIEWED_IN, UPDATED_IN),
    report_line: Callable[[str], None] = lambda _: None,
    past: PriorState | None = None,
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
        past: The state of the environment before.

    Raises:
        EngineError: if the engine cannot be run.
    """
    known_revisions, before = revisions or Revisions(), past or PriorState()
    state = before.comment_state
    report = preview(engine, environment, known_revisions, limits[0])
    if report.blocked:
        return ApplyOutcome(environment, Applied.REFUSED, f"{environment}: {_refusal(report)}", report)
    if not report.steps and report.outcome.value == "unchanged":
        return ApplyOutcome(environment, Applied.UNCHANGED, f"{environment}: nothing to do", report)
    if newer := before.superseded_by():
        return ApplyOutcome(environment, Applied.SUPERSEDED, f"{environment}: not applied: {newer}", report)
    if state is not None and state.applied:
        message = f"{environment}: applied already at {state.at}; another change needs a pull request of its own"
        return ApplyOutcome(environment, Applied.ALREADY, message, report)
    if not reviewed or report.digest not in {reviewed, state.rest if state is not None else reviewed}:
        message = _unlike(environment, report.digest, reviewed, before.reason)
        return ApplyOutcome(environment, Applied.NOT_REVIEWED, message, report)
    if continued := report.digest != reviewed:
        report_line(f"{environment}: goes on with the rest of {known_revisions.head[:12]}, whose update failed")
    done = replace(_updated(engine, environment, workflow, report, limits[1], report_line), continued=continued)
    return (
        replace(done, remaining=_preview_remaining(engine, report, known_revisions, limits[0]))
        if done.status is Applied.FAILED
        else done
    )


def _preview_remaining(
    engine: Engine, reviewed: EnvironmentReport, revisions: Revisions, limit: timedelta
) -> RemainingSteps:
    """Return the remaining steps of a failed update, by a preview right after it."""
    try:
        return compute_remaining(reviewed, preview(engine, reviewed.environment, revisions, limit))
    except ReviewError as error:
        return unknown(reviewed.environment, masked(str(error)))


def _updated(
    engine: Engine, environment: str, workflow: Workflow, report: EnvironmentReport, limit: timedelta,
    report_line: Callable[[str], None],
) -> ApplyOutcome:  # fmt: skip
    here = Here.own()
    ended = _up(engine, environment, limit)
    if ended.code and locked(ended.output):
        locks = parse_locks(ended.output)
        if not left_by_this_repository(locks, here, workflow.began, workflow.others(locks)):
            return ApplyOutcome(environment, Applied.LOCKED, describe_locks(environment, locks, here), report)
        report_line(f"{environment}: freed the lock that an earlier run of this repository left: {locks[0].holder}")
        engine.cancel(environment)
        ended = _up(engine, environment, limit)
    if ended.code == 0:
        done = f"{environment}: updated, {len(report.steps)} resources changed, digest {report.digest[:12]}"
        return ApplyOutcome(environment, Applied.UPDATED, done, report)
    if ended.killed:
        _freed(engine, environment, here, ended.pid)
    return ApplyOutcome(environment, Applied.FAILED, f"{environment}: the update failed: {_last(ended)}", report)


def _freed(engine: Engine, environment: str, here: Here, pid: int) -> None:
    """Free the lock of an engine that had to be killed; nobody else's."""
    locks = parse_locks(engine.holders(environment))
    if locks and all((lock.host, lock.pid) == (here.host, pid) for lock in locks):
        engine.cancel(environment)


def _up(engine: Engine, environment: str, limit: timedelta) -> Ended:
    with TemporaryDirectory(prefix="everspot-review-") as folder:
        return engine.up(environment, Path(folder) / "events.jsonl", limit)


def _last(ended: Ended) -> str:
    return masked(ended.output[-TOLD:].strip()) or f"exit code {ended.code}"


def _refusal(report: EnvironmentReport) -> str:
    rules = [f"{rule.rule} ({rule.resource}): {rule.message}" for rule in report.rules if rule.stops]
    errors = [diagnostic.text for diagnostic in report.diagnostics if diagnostic.severity == "error"]
    return "; ".join([*(f"rule broken: {text}" for text in rules), *errors])[:TOLD] or "the preview failed"


def _unlike(environment: str, now: str, reviewed: str, reason: str) -> str:
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


def next_comment_state(outcome: ApplyOutcome, now: datetime, before: CommentState | None) -> CommentState | None:
    """Return the next entry of our comment for an environment. `before`: the present entry."""
    revision = outcome.report.head
    if not revision or outcome.status not in (Applied.UPDATED, Applied.UNCHANGED, Applied.FAILED):
        return before
    if outcome.status is not Applied.FAILED:
        return CommentState(revision, minute(now))
    return (
        CommentState(revision, minute(now), outcome.remaining.digest)
        if outcome.remaining and outcome.remaining.digest
        else None
    )
