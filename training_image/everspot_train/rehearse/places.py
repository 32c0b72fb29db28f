"""Chooses the interruptions of a run by the steps of an undisturbed run."""

from dataclasses import dataclass, field

from everspot_train.rehearse.records import Record

MIDDLE = "in the middle of an epoch"
EPOCH_END = "at the end of an epoch"
EVALUATION = "after an evaluation"
SUDDEN = "without notice, after a checkpoint"
TWICE = "twice in a row"
AFTER_LOOP = "after the last step"
PLACES = (MIDDLE, EPOCH_END, EVALUATION, SUDDEN, TWICE, AFTER_LOOP)


@dataclass(frozen=True)
class PlannedInterruption:
    """One interruption.

    Attributes:
        step: optimizer steps before the interruption; None: after the loop.
        notice: whether it is announced, so that the trainer checkpoints; otherwise the machine disappears immediately.
        checkpoint_at: an earlier step after which the trainer checkpoints.
    """

    step: int | None
    notice: bool = True
    checkpoint_at: int | None = None


@dataclass(frozen=True)
class InterruptionPlace:
    """A place of interruption. `missing`: why it cannot be rehearsed."""

    name: str
    interruptions: list[PlannedInterruption] = field(default_factory=list)
    missing: str = ""


def list_places(record: Record) -> list[InterruptionPlace]:
    """Return all places, in the order in which they are shown."""
    steps = record.steps
    ends = [step for step in record.epoch_ends if 1 <= step < steps]
    evaluations = [b.step for b in record.boundaries if b.evaluated and not b.end and 1 <= b.step < steps]
    return [
        _notice(MIDDLE, _middle(steps, ends, evaluations), f"the run has only {steps} steps"),
        _notice(EPOCH_END, ends[0] if ends else None, _no_end(record)),
        _notice(
            EVALUATION, evaluations[0] if evaluations else None, f"the loop made no evaluation within {steps} steps"
        ),
        _sudden(steps),
        _twice(steps, ends),
        InterruptionPlace(
            AFTER_LOOP, [PlannedInterruption(None, notice=False)] if steps else [], "the loop has no end"
        ),
    ]


def _notice(name: str, step: int | None, missing: str) -> InterruptionPlace:
    return (
        InterruptionPlace(name, [PlannedInterruption(step)])
        if step is not None
        else InterruptionPlace(name, missing=missing)
    )


def _middle(steps: int, ends: list[int], evaluations: list[int]) -> int | None:
    """Return a step about halfway to the first end of an epoch, or in the first third of a run without one."""
    target = ends[0] / 2 if ends else steps / 3
    candidates = [step for step in range(1, steps) if step not in ends]
    quiet = [step for step in candidates if step not in evaluations]
    return min(quiet or candidates, key=lambda step: (abs(step - target), step), default=None)


def _no_end(record: Record) -> str:
    if record.per_epoch is None:
        return f"no epoch ended within {record.steps} steps"
    return f"an epoch has {record.per_epoch} steps: --steps {record.per_epoch + 3} reaches its end"


def _sudden(steps: int) -> InterruptionPlace:
    checkpoint = max(1, steps // 4)
    death = min(checkpoint + 2, steps - 1)
    if death <= checkpoint:
        return InterruptionPlace(SUDDEN, missing=f"the run has only {steps} steps")
    return InterruptionPlace(SUDDEN, [PlannedInterruption(death, notice=False, checkpoint_at=checkpoint)])


def _twice(steps: int, ends: list[int]) -> InterruptionPlace:
    first = max(1, steps // 2)
    if first in ends and first + 2 < steps:
        first += 1
    if first + 1 >= steps:
        return InterruptionPlace(TWICE, missing=f"the run has only {steps} steps")
    return InterruptionPlace(TWICE, [PlannedInterruption(first), PlannedInterruption(first + 1)])
