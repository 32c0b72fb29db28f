"""A toy that takes its time by the clock: it begins PACED_SETUP seconds of market time after its assignment, and what
one step was late the next ones make up for.

So a job takes as long as its workload says on any machine, however busy it is.
"""

import os
import sys
from datetime import timedelta

from everspot_core.jobs.records import EventKind
from everspot_store import Fenced, Store, SystemClock
from everspot_train.rundir import RunContext, RunDir
from toy_train import Toy, next_weight


class Paced(Toy):
    """`first` and `began`: the step with which this process began, and when."""

    store: Store
    began: timedelta | None = None
    first = 0

    def restore(self) -> None:
        context = self.context
        history = self.store.events(context.job_id, brief=True)
        assigned_at = max(
            (e.at for e in history if e.kind is EventKind.ASSIGNED and e.epoch == context.epoch), default=None
        )
        if assigned_at is not None:
            begins = assigned_at + timedelta(seconds=float(os.environ["PACED_SETUP"]))
            self.clock.sleep(self.clock.to_real(begins - self.clock.now()))
        super().restore()

    def write_status(self, **update: object) -> None:
        done, pace = self.step - self.first, {}
        if self.began is not None and done > 0:
            pace = {"steps_per_second": done / max(1e-3, (self.clock.monotonic() - self.began).total_seconds())}
        super().write_status(**pace, **update)

    def execute(self) -> None:
        if self.began is None:
            self.began, self.first = self.clock.monotonic(), self.step
        due = self.began + (self.step + 1 - self.first) * timedelta(seconds=self.step_seconds)
        self.clock.sleep(due - self.clock.monotonic())
        self.weight = next_weight(self.weight, self.step)
        self.step += 1


def main() -> None:
    clock, run_dir = SystemClock.from_environment(), RunDir.from_environment()
    assert run_dir is not None
    context = run_dir.read(RunContext)
    assert context is not None
    store = Store.open(context.control_url, context.data_url, clock=clock)
    try:
        paced = Paced(run_dir, store, clock, os.environ)
        paced.store = store
        for _ in paced.steps():
            pass
    except Fenced:
        sys.exit(3)


if __name__ == "__main__":
    main()
