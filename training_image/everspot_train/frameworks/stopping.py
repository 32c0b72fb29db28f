"""The job's `stop` in a loop of a framework, which carries it out itself: the agent leaves it to the program."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from everspot_core.jobs.early_stop import EarlyStop, StopRule, StopTracker

from everspot_train.rundir import RunDir, StopReport
from everspot_train.trainer.ranks import rank_from_environment

_log = logging.getLogger(__name__)


class FrameworkStop:
    """The evaluations of one loop, as far as the checkpoint that it resumed from and since then. Without a `stop` in
    the job's file it does nothing.

    Args:
        share: returns the first rank's flag on every rank.

    Attributes:
        early_stop: why the loop ends before its last step, once that is decided.
    """

    def __init__(self, rundir: RunDir, rule: StopRule | None, share: Callable[[bool], bool]) -> None:
        self.metric = rule.metric if rule is not None else None
        self.early_stop: EarlyStop | None = None
        self._rundir, self._share = rundir, share
        self._tracker = StopTracker(rule) if rule is not None else None
        self._write(StopReport())

    def add(self, step: int, value: float) -> None:
        """Add an evaluation, which need not be finite."""
        if self._tracker is not None:
            self._tracker.add(step, value)

    def should_end(self, step: int, total_steps: int | None) -> bool:
        """Return whether the loop ends now, the same on all ranks, which all call it. A loop that has no step left is
        not ended early."""
        if self._tracker is None:
            return False
        early_stop = self._tracker.early_stop
        is_over = total_steps is not None and 0 < total_steps <= step
        if not self._share(early_stop is not None and not is_over):
            return False
        if early_stop is not None and self.early_stop is None:
            _log.info("%s", early_stop.sentence)
        self.report(early_stop)
        return True

    def report(self, early_stop: EarlyStop | None) -> None:
        """Report why the loop ends, or has ended in an earlier attempt."""
        self.early_stop = early_stop
        self._write(StopReport(early_stop=early_stop))

    def _write(self, report: StopReport) -> None:
        if self._tracker is None or rank_from_environment() != 0:
            return
        try:
            self._rundir.write(report)
        except OSError as error:  # such as a full disk
            _log.warning("the agent does not know how the job's stop stands: %s", error)

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state for a checkpoint, of values that need no pickle."""
        if self._tracker is None:
            return None
        return {"tracker": self._tracker.state_dict(), "decided": self.early_stop is not None}

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Go on from the state of a checkpoint. A loop that had ended by then is reported again."""
        if self._tracker is None:
            return
        self._tracker.load_state_dict(state["tracker"] if state is not None else None)
        if state is not None and state["decided"] and self._tracker.early_stop is not None:
            self.report(self._tracker.early_stop)
