"""Checks whether a later change of the branch was applied already: an older run, run again, would undo it.

Two places record applied changes: our comments on the later pull requests, and the control bucket of the environment's
cluster, which has failed updates, too. A revision is later if it descends from the one that would be applied.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from everspot_core.cluster.deployment import control_url
from everspot_store import Store, StoreError

from everspot_review.comment_state import CommentState, minute
from everspot_review.engine import Engine, EngineError
from everspot_review.forge import Forge
from everspot_review.history import MOST, after, has, precedes
from everspot_review.reviewed import list_reviews
from everspot_review.values import masked

RESUBMIT_HINT = "To make this change now, open a pull request of its own"


@dataclass
class SupersededCheck:
    """The check for changes after the revision that is applied.

    Attributes:
        root: the project.
        branch: the branch that the revision was merged into.
        revision: its full name.
        report_line: gets a sentence for each thing that could not be looked up.
    """

    root: Path
    engine: Engine
    forge: Forge
    branch: str
    revision: str
    author: str | None = None
    report_line: Callable[[str], None] = lambda _: None

    def applied(self, environment: str) -> str:
        """Return why this revision is not to be applied to an environment any more, a sentence; empty if nothing speaks
        against it.

        Raises:
            ReviewError: if git or the forge cannot say.
        """
        if not self.branch or self._tip == self.revision:
            return ""
        if self._has_tip and not precedes(self.root, self.revision, self._tip):
            return f"{self.revision[:12]} is not on {self.branch} any more. {RESUBMIT_HINT}"
        if newer_change := self._by_store(environment) or self._by_comments(environment):
            return f"{newer_change}, and it came after {self.revision[:12]}. {RESUBMIT_HINT}"
        if len(self._commits) > MOST:
            too_many = f"more than {MOST} commits came after {self.revision[:12]}, which are too many to look at"
            return f"{too_many}. {RESUBMIT_HINT}"
        return ""

    @cached_property
    def _tip(self) -> str:
        return self.forge.tip(self.branch)

    @cached_property
    def _has_tip(self) -> bool:
        """Whether the branch's end is in this clone, which it is not if it came after the checkout."""
        if is_here := has(self.root, self._tip):
            return is_here
        self.report_line(
            f"{self._tip[:12]}, where {self.branch} ends now, came after this checkout: it is not looked at"
        )
        return False

    @cached_property
    def _commits(self) -> tuple[str, ...]:
        return after(self.root, self._tip) if self._has_tip else ()

    @cached_property
    def _states(self) -> dict[str, list[CommentState]]:
        """The states in comments on the later pull requests, by environment."""
        states_by_environment: dict[str, list[CommentState]] = {}
        for review in list_reviews(self.forge, self._commits[:MOST], self.branch, self.author).reviews:
            for environment, state in review.states.items():
                states_by_environment.setdefault(environment, []).append(state)
        return states_by_environment

    def _by_comments(self, environment: str) -> str:
        for state in self._states.get(environment, ()):
            if self._follows(state.revision):
                return f"{state.revision[:12]} was {'' if state.applied else 'partly '}applied at {state.at}"
        return ""

    def _by_store(self, environment: str) -> str:
        try:
            url = control_url(self.engine.state(environment))
            changes = Store.open(url, url).changes.all() if url else []
        except (EngineError, StoreError, ValueError) as error:
            reason = masked(" ".join(str(error).split()))[:300]
            self.report_line(f"{environment}: what was applied later is looked for in comments alone: {reason}")
            return ""
        for change in reversed(changes):
            if change.environment == environment and self._follows(change.revision):
                partly = "" if change.whole else "partly "
                return f"{change.revision[:12]} was {partly}applied at {minute(change.at)}"
        return ""

    def _follows(self, revision: str) -> bool:
        return bool(revision) and revision != self.revision and precedes(self.root, self.revision, revision)
