"""What a push to a branch has brought, applied: each environment as the newest review that showed a change of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from everspot_review.applying import ApplyOutcome, PriorState, Workflow, apply
from everspot_review.changed import Project
from everspot_review.commenting import stamped
from everspot_review.engine import Engine
from everspot_review.forge import Forge
from everspot_review.history import Push
from everspot_review.job import pushed_branch
from everspot_review.later import Later
from everspot_review.previewing import Revisions
from everspot_review.recorded import record
from everspot_review.reviewed import Reviewed, ReviewedDigest, Reviews, reviewed_of


@dataclass(frozen=True)
class ApplyOptions:
    """What a person may say beside the environments. `digest`: the reviewed one, None to ask our comments; `author`:
    whose comments are ours, None for the token's owner; `limits`: of a preview and of an update."""

    digest: str | None
    author: str | None
    limits: tuple[timedelta, timedelta]


@dataclass(frozen=True)
class Merge:
    """A push that is applied. `forge`: None on a person's machine; `tell`: gets each sentence as it is known."""

    engine: Engine
    project: Project
    push: Push
    forge: Forge | None
    given: ApplyOptions
    tell: Callable[[str], None]

    def applied(self, environments: Sequence[str]) -> tuple[list[ApplyOutcome], list[str]]:
        """Apply environments one after the other, until one is not as declared; returns what has become of them, and
        what was told.

        Raises:
            ReviewError: if the engine, git or the forge is not available.
        """
        began, outcomes, lines = datetime.now(UTC), list[ApplyOutcome](), list[str]()
        reviews, later = self._reviews(), self._later()
        for name in environments:
            mine = reviews.of(name)
            outcome = self._one(name, Workflow.here(self.forge, began), reviews, later)
            outcomes.append(outcome)
            self.tell(outcome.said)
            left = self._stamp(mine, outcome)
            told = [line for line in (left, record(self.engine, outcome, mine[0].pull if mine else None)) if line]
            for line in told:
                self.tell(line)
            lines += [outcome.said, *told]
            if not outcome.word.goes_on:
                break
        return outcomes, lines

    @property
    def _revision(self) -> str:
        return self.push.commits[0]

    def _reviews(self) -> Reviews:
        if self.forge is None or self.given.digest is not None:
            return Reviews()
        return reviewed_of(self.forge, self.push.commits, pushed_branch(), self.given.author)

    def _later(self) -> Later | None:
        """None where a person has seen what would be done now."""
        if self.forge is None or self.given.digest is not None:
            return None
        root, branch, tell = self.project.root, pushed_branch(), self.tell
        return Later(root, self.engine, self.forge, branch, self._revision, self.given.author, tell)

    def _one(self, name: str, workflow: Workflow, reviews: Reviews, later: Later | None) -> ApplyOutcome:
        wanted = ReviewedDigest(self.given.digest) if self.given.digest is not None else reviews.wanted(name)
        past = PriorState(reviews.kept(name, self._revision), wanted.why, lambda: later.applied(name) if later else "")
        revisions = Revisions("", self._revision)
        return apply(self.engine, name, wanted.digest, workflow, revisions, self.given.limits, self.tell, past)

    def _stamp(self, mine: Sequence[Reviewed], outcome: ApplyOutcome) -> str:
        """Say it in the comment of each pull request that showed a change of the environment; returns what is to be
        told of the newest one's."""
        said = [stamped(self.forge, one, outcome, datetime.now(UTC), self.given.author) for one in mine or (None,)]
        return said[0]
