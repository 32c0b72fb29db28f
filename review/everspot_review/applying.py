"""Updates of environments after the merge: only of what was reviewed, and by the rules.

preview again → refused: exit 1 │ nothing to do: exit 0 │ applied already, overtaken by what came later, or not what
was reviewed: exit 3 → update
→ told in the comment; of an update that failed also what is left, with which a later run goes on
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from everspot_review.engine import PREVIEWED_IN, UPDATED_IN, Ended, Engine
from everspot_review.errors import ReviewError, ReviewExit
from everspot_review.forge import Forge
from everspot_review.kept import Kept, minute
from everspot_review.locks import Here, Lock, held, left_by_this_repository, locked, told_of
from everspot_review.previewing import Revisions, preview
from everspot_review.refusals import ForgeError
from everspot_review.report import EnvironmentReport
from everspot_review.rest import Rest, rest_of, unknown
from everspot_review.values import masked

CLOCKS = timedelta(minutes=5)
"""How far the clocks of a runner and of the forge may be apart."""

TOLD = 2_000
"""Characters of the engine's last words that are told of an update that failed."""


class Applied(StrEnum):
    """What has become of an environment. SUPERSEDED: something that came after this revision was applied."""

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
    """What has become of an environment, in a word and in a sentence. `report`: what the preview before it found;
    `rest`: what an update that failed has left; `continued`: whether the update was one of such a rest."""

    environment: str
    word: Applied
    said: str
    report: EnvironmentReport
    rest: Rest | None = None
    continued: bool = False


@dataclass(frozen=True)
class PriorState:
    """What is known of an environment before it is applied. `kept`: what our comment keeps of it at this revision;
    `why`: why what would be done now may be something else than was reviewed, a sentence, or empty; `later`: tells why
    this revision is not to be applied any more, or nothing."""

    kept: Kept | None = None
    why: str = ""
    later: Callable[[], str] = str


@dataclass(frozen=True)
class Workflow:
    """The run of a workflow that this is, as far as there is one. `began`: when it began; `forge`: where it runs, None
    on a person's machine; `run`: its number."""

    began: datetime
    forge: Forge | None = field(default=None, repr=False)
    run: int = 0

    @classmethod
    def here(cls, forge: Forge | None, now: datetime, variables: Mapping[str, str] = os.environ) -> "Workflow":
        """The run by the variables that a runner sets."""
        number = variables.get("GITHUB_RUN_ID", "")
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
    tell: Callable[[str], None] = lambda _: None,
    past: PriorState | None = None,
) -> ApplyOutcome:
    """Update an environment, if that would do what was reviewed, or what an update that failed has left of that.
    `reviewed`: the digest of the preview that was, empty if there was none; `limits`: of preview and update.

    Raises:
        EngineError: if the engine cannot be run.
    """
    known, before = revisions or Revisions(), past or PriorState()
    kept = before.kept
    seen = preview(engine, environment, known, limits[0])
    if seen.blocked:
        return ApplyOutcome(environment, Applied.REFUSED, f"{environment}: {_refusal(seen)}", seen)
    if not seen.steps and seen.outcome.value == "unchanged":
        return ApplyOutcome(environment, Applied.UNCHANGED, f"{environment}: nothing to do", seen)
    if later := before.later():
        return ApplyOutcome(environment, Applied.SUPERSEDED, f"{environment}: not applied: {later}", seen)
    if kept is not None and kept.applied:
        said = f"{environment}: applied already at {kept.at}; another change needs a pull request of its own"
        return ApplyOutcome(environment, Applied.ALREADY, said, seen)
    if not reviewed or seen.digest not in {reviewed, kept.rest if kept is not None else reviewed}:
        said = _unlike(environment, seen.digest, reviewed, before.why)
        return ApplyOutcome(environment, Applied.NOT_REVIEWED, said, seen)
    if continued := seen.digest != reviewed:
        tell(f"{environment}: goes on with the rest of {known.head[:12]}, whose update failed")
    done = replace(_updated(engine, environment, workflow, seen, limits[1], tell), continued=continued)
    return replace(done, rest=_left(engine, seen, known, limits[0])) if done.word is Applied.FAILED else done


def _left(engine: Engine, seen: EnvironmentReport, revisions: Revisions, limit: timedelta) -> Rest:
    """What an update that failed has left to do, by a preview right after it."""
    try:
        return rest_of(seen, preview(engine, seen.environment, revisions, limit))
    except ReviewError as error:
        return unknown(seen.environment, masked(str(error)))


def _updated(
    engine: Engine, environment: str, workflow: Workflow, seen: EnvironmentReport, limit: timedelta,
    tell: Callable[[str], None],
) -> ApplyOutcome:  # fmt: skip
    here = Here.own()
    ended = _up(engine, environment, limit)
    if ended.code and locked(ended.told):
        locks = held(ended.told)
        if not left_by_this_repository(locks, here, workflow.began, workflow.others(locks)):
            return ApplyOutcome(environment, Applied.LOCKED, told_of(environment, locks, here), seen)
        tell(f"{environment}: freed the lock that an earlier run of this repository left: {locks[0].said}")
        engine.cancel(environment)
        ended = _up(engine, environment, limit)
    if ended.code == 0:
        done = f"{environment}: updated, {len(seen.steps)} resources changed, digest {seen.digest[:12]}"
        return ApplyOutcome(environment, Applied.UPDATED, done, seen)
    if ended.killed:
        _freed(engine, environment, here, ended.pid)
    return ApplyOutcome(environment, Applied.FAILED, f"{environment}: the update failed: {_last(ended)}", seen)


def _freed(engine: Engine, environment: str, here: Here, pid: int) -> None:
    """Free the lock that an engine kept which had to be killed; nobody else's."""
    locks = held(engine.holders(environment))
    if locks and all((lock.host, lock.pid) == (here.host, pid) for lock in locks):
        engine.cancel(environment)


def _up(engine: Engine, environment: str, limit: timedelta) -> Ended:
    with TemporaryDirectory(prefix="everspot-review-") as folder:
        return engine.up(environment, Path(folder) / "events.jsonl", limit)


def _last(ended: Ended) -> str:
    return masked(ended.told[-TOLD:].strip()) or f"exit code {ended.code}"


def _refusal(report: EnvironmentReport) -> str:
    rules = [f"{rule.rule} ({rule.resource}): {rule.message}" for rule in report.rules if rule.stops]
    said = [diagnostic.text for diagnostic in report.diagnostics if diagnostic.severity == "error"]
    return "; ".join([*(f"rule broken: {text}" for text in rules), *said])[:TOLD] or "the preview failed"


def _unlike(environment: str, now: str, reviewed: str, why: str) -> str:
    if not reviewed:
        why = why or "no comment of ours has its digest"
        return f"{environment}: what would happen now ({now[:12]}) was not reviewed: {why}"
    if why:
        return f"{environment}: what would happen now ({now[:12]}) is not what was reviewed ({reviewed[:12]}): {why}"
    return (
        f"{environment}: what would happen now ({now[:12]}) is not what was reviewed ({reviewed[:12]}). Something else "
        f"was applied in between, somebody changed the environment by hand, or a value that is looked up, such as the "
        f"newest image, has changed. Open a pull request again to see it"
    )


def stamp(outcome: ApplyOutcome, now: datetime) -> str:
    """The line on an environment in the comment."""
    sign = "✅" if outcome.word.exit is ReviewExit.OK else "🛑"
    went_on = f", went on with the rest of {outcome.report.head[:12]}" if outcome.continued else ""
    return f"- {sign} **{outcome.environment}**: {outcome.word.value} at {minute(now)}{went_on}"


def kept_after(outcome: ApplyOutcome, now: datetime, before: Kept | None) -> Kept | None:
    """What our comment keeps of an environment from now on. `before`: what it kept until now."""
    revision = outcome.report.head
    if not revision or outcome.word not in (Applied.UPDATED, Applied.UNCHANGED, Applied.FAILED):
        return before
    if outcome.word is not Applied.FAILED:
        return Kept(revision, minute(now))
    return Kept(revision, minute(now), outcome.rest.digest) if outcome.rest and outcome.rest.digest else None
