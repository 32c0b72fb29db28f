"""A user's program without torch: "trains" an integer, checkpoints it, and keeps the rules of the run directory.

It says every step that it executes in a file of its own (TOY_TRACE), so that a test sees what really happened and
does not depend on what anybody reports.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from everspot_core.clock import Clock
from everspot_core.jobs.records import EventKind
from everspot_store import Fenced, Store, SystemClock
from everspot_train.rundir import CheckpointRequest, LeaseFile, RunContext, RunDir, Status, StopRequest, TrainingPhase

MODULUS = 2**61 - 1


def next_weight(weight: int, step: int) -> int:
    return (weight * 6364136223846793005 + step * 1442695040888963407 + 1) % MODULUS


def expected(steps: int) -> int:
    weight = 1
    for step in range(steps):
        weight = next_weight(weight, step)
    return weight


class Toy:
    """One training process; `steps()` yields after each step, so that a test may hold it anywhere."""

    def __init__(self, run_dir: RunDir, store: Store, clock: Clock, env: Mapping[str, str]) -> None:
        self.run_dir, self.clock = run_dir, clock
        self.total = int(env.get("TOY_STEPS", "20"))
        self.step_seconds = float(env.get("TOY_STEP_SECONDS", "0.02"))
        self.checkpoint_every = int(env.get("TOY_EVERY", "5"))
        self.fail_at = int(env.get("TOY_FAIL_AT", "-1"))
        self.deaf = env.get("TOY_DEAF") == "1"
        self.trace = Path(env["TOY_TRACE"]) if "TOY_TRACE" in env else None
        context = run_dir.read(RunContext)
        assert context is not None
        self.context = context
        writer = f"trainer-{context.instance_id}"
        self.events = store.event_writer(context.job_id, context.epoch, writer, context.instance_id)
        owner = context.incarnation
        self.checkpoints = store.checkpoints(context.job_id, context.epoch, self.lease_valid, incarnation=owner)
        self.step, self.weight = 0, 1
        self.status = Status()
        self.requests = 0

    def lease_valid(self) -> bool:
        if self.deaf:
            return True
        lease = self.run_dir.read(LeaseFile)
        return lease is not None and self.clock.monotonic().total_seconds() < lease.valid_until

    def write_status(self, **update: object) -> None:
        self.status = self.status.model_copy(update={"step": self.step, "total_steps": self.total, **update})
        self.run_dir.write(self.status)

    def restore(self) -> None:
        self.write_status(phase=TrainingPhase.RESTORING)
        self.checkpoints.fence()
        scratch = Path(self.context.scratch_dir)
        checkpoint = self.checkpoints.restore(scratch)
        if checkpoint is not None:
            state = json.loads((scratch / "state.json").read_text())
            self.step, self.weight = state["step"], state["weight"]
        resumed = checkpoint.step if checkpoint is not None else None
        self.events.emit(EventKind.TRAINING, from_step=self.step, restored=checkpoint is not None, seconds=0.0)
        self.write_status(phase=TrainingPhase.TRAINING, resumed_from=resumed, durable_step=resumed)

    def checkpoint(self, trigger: str) -> None:
        path = Path(self.context.scratch_dir) / f"state-{self.step}.json"
        path.write_text(json.dumps({"step": self.step, "weight": self.weight}))
        done = self.checkpoints.publish(self.step, {"state.json": path}, keep=2)
        self.events.emit(
            EventKind.CHECKPOINTED, step=self.step, bytes=path.stat().st_size, seconds=0.0, trigger=trigger
        )
        self.checkpoints.retire(self.lease_valid)
        self.write_status(durable_step=done.step, durable_at=self.clock.now())

    def steps(self) -> Iterator[None]:
        try:
            self.restore()
            yield
            yield from self.train()
        except Fenced as error:
            self.write_status(phase=TrainingPhase.FENCED, message=str(error))
            raise
        except Exception as error:
            self.write_status(phase=TrainingPhase.FAILED, message=f"{type(error).__name__}: {error}")
            raise

    def train(self) -> Iterator[None]:
        while self.step < self.total:
            if not self.lease_valid():
                raise Fenced(self.context.job_id, self.context.epoch, "its lease has ended")
            if not self.deaf and self.run_dir.read(StopRequest) is not None:
                self.checkpoint("notice")
                self.write_status(phase=TrainingPhase.STOPPED)
                return
            request = self.run_dir.read(CheckpointRequest)
            if request is not None and request.seq > self.requests:
                self.requests = request.seq
                self.checkpoint("rebalance")
            if self.step == self.fail_at:
                raise ArithmeticError(f"the loss is not a number at step {self.step}")
            self.execute()
            yield
            if self.step % self.checkpoint_every == 0 and self.step < self.total:
                self.checkpoint("interval")
            self.write_status(phase=TrainingPhase.TRAINING, metrics={"loss": 1.0 / (1 + self.step)})
        self.checkpoint("final")
        self.write_status(phase=TrainingPhase.FINISHED)

    def execute(self) -> None:
        self.clock.sleep(timedelta(seconds=self.step_seconds))
        self.weight = next_weight(self.weight, self.step)
        if self.trace is not None:
            at = self.clock.monotonic().total_seconds()
            owner = self.context.instance_id
            fact = {
                "epoch": self.context.epoch,
                "step": self.step,
                "at": at,
                "instance": owner,
                "job": self.context.job_id,
            }
            with self.trace.open("a") as file:
                file.write(json.dumps(fact) + "\n")
        self.step += 1


def main() -> None:
    clock = SystemClock.from_environment()
    run_dir = RunDir.from_environment()
    assert run_dir is not None
    context = run_dir.read(RunContext)
    assert context is not None
    store = Store.open(context.control_url, context.data_url, clock=clock)
    toy = Toy(run_dir, store, clock, os.environ)
    try:
        for _ in toy.steps():
            print(f"step {toy.step - 1}", flush=True)
    except Fenced:
        sys.exit(3)
    sys.exit(int(os.environ.get("TOY_EXIT", "0")))


if __name__ == "__main__":
    main()
