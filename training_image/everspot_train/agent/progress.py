"""How far a program has come, as the job's record shows it: from what the program says of itself."""

from typing import Any

from everspot_core.records import Progress

from everspot_train.rundir import Status, TrainingPhase

BEFORE_TRAINING = (TrainingPhase.STARTING, TrainingPhase.RESTORING)


def progress_of(status: Status, last: Progress, stalled_seconds: float | None, used: dict[str, Any]) -> Progress:
    """The progress to be told. `last`: what the record says; `used`: of memory.

    Until the program has said where it goes on, that is where the newest checkpoint is that the record knows of: an
    instance that is lost while it starts has cost nothing of what was done before.
    """
    if status.phase in BEFORE_TRAINING:
        saved = last.durable_step
        return Progress(
            step=last.step if saved is None else saved,
            total_steps=last.total_steps,
            durable_step=saved,
            metrics=status.metrics,
            **used,
        )
    return Progress(
        step=status.step,
        total_steps=status.total_steps,
        durable_step=status.durable_step,
        steps_per_second=status.steps_per_second,
        metrics=status.metrics,
        stalled_seconds=stalled_seconds,
        **used,
    )
