"""Applies a push to a branch: each environment by the newest review that showed a change of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from everspot_review.affected import Project
from everspot_review.apply import ApplyOutcome, PriorState, WorkflowRun, apply
from everspot_review.change_record import record
from everspot_review.commenting import stamped
from everspot_review.engine import Engine
from everspot_review.forge import Forge
from everspot_review.history import Push
from everspot_review.job import pushed_branch
from everspot_review.previewing import Revisions
from everspot_review.reviewed import Reviewed, ReviewedDigest, Reviews, list_reviews
from everspot_review.superseded import SupersededCheck


@dataclass(frozen=True)
class ApplyOptions:
    """The options of a person beside the environments.

    Attributes:
        digest: the reviewed one, None to read our comments.
        author: the author of our comments, None for the token's owner.
        limits: of a preview and of an update.
    """

    digest: str | None
    author: str | None
    limits: tuple[timedelta, timedelta]


@dataclass(frozen=True)
class PushApplication:
    """The application of one push.

    Attributes:
        forge: None on a person's machine.
        report_line: Gets each sentence when it is known.
    """

    engine: Engine
    project: Project
    push: Push
    forge: Forge | None
    options: ApplyOptions
    report_line: Callable[[str], None]

    def apply(self, environments: Sequence[str]) -> tuple[list[ApplyOutcome], list[str]]:
        """Apply environments one after the other, until one is not as declared. Return the outcomes and the reported
        lines.

        Raises:
            ReviewError: if the engine, git or the forge is not available.
        """
        began, outcomes, lines = datetime.now(UTC), list[ApplyOutcome](), list[str]()
        reviews, later = self._reviews(), self._later()
        for name in environments:
            reviews_of_name = reviews.for_environment(name)
            outcome = self._apply_one(name, WorkflowRun.here(self.forge, began), reviews, later)
            outcomes.append(outcome)
            self.report_line(outcome.message)
            note = self._stamp(reviews_of_name, outcome)
            notes = [
                line
                for line in (note, record(self.engine, outcome, reviews_of_name[0].pull if reviews_of_name else None))
                if line
            ]
            for line in notes:
                self.report_line(line)
            lines += [outcome.message, *notes]
            if not outcome.status.goes_on:
                break
        return outcomes, lines

    @property
    def _revision(self) -> str:
        return self.push.commits[0]

    def _reviews(self) -> Reviews:
        if self.forge is None or self.options.digest is not None:
            return Reviews()
        return list_reviews(self.forge, self.push.commits, pushed_branch(), self.options.author)

    def _later(self) -> SupersededCheck | None:
        """Return the check for superseding changes; None if a person has seen the present steps."""
        if self.forge is None or self.options.digest is not None:
            return None
        root, branch, report_line = self.project.root, pushed_branch(), self.report_line
        return SupersededCheck(root, self.engine, self.forge, branch, self._revision, self.options.author, report_line)

    def _apply_one(
        self, name: str, workflow: WorkflowRun, reviews: Reviews, later: SupersededCheck | None
    ) -> ApplyOutcome:
        expected = (
            ReviewedDigest(self.options.digest) if self.options.digest is not None else reviews.expected_digest(name)
        )
        past = PriorState(
            reviews.state_at(name, self._revision), expected.reason, lambda: later.applied(name) if later else ""
        )
        revisions = Revisions("", self._revision)
        return apply(
            self.engine, name, expected.digest, workflow, revisions, self.options.limits, self.report_line, past
        )

    def _stamp(self, reviews: Sequence[Reviewed], outcome: ApplyOutcome) -> str:
        """Write the outcome into the comment of each pull request that showed a change of the environment. Return the
        message about the newest one's comment."""
        notes = [
            stamped(self.forge, review, outcome, datetime.now(UTC), self.options.author)
            for review in reviews or (None,)
        ]
        return notes[0]
