"""Makes the progress in the job's record from the program's reports."""

from typing import Any

from everspot_core.jobs.records import Progress

from everspot_train.rundir import Status, TrainingPhase

BEFORE_TRAINING = (TrainingPhase.STARTING, TrainingPhase.RESTORING)


def report_progress(status: Status, last: Progress, stalled_seconds: float | None, used: dict[str, Any]) -> Progress:
    """Return the progress to report. `last`: the record's progress. `used`: the memory fields.

    Until the program has reported its first step, the step is that of the newest checkpoint in the record. So losing an
    instance while the program starts does not count as lost progress.
    """
    if status.phase in BEFORE_TRAINING:
        saved = last.durable_step
        return Progress(
            step=last.step if saved is None else saved,
            total_steps=last.total_steps,
            steps_per_epoch=last.steps_per_epoch,
            durable_step=saved,
            metrics=status.metrics,
            **used,
        )
    return Progress(
        step=status.step,
        total_steps=status.total_steps,
        steps_per_epoch=status.steps_per_epoch,
        durable_step=status.durable_step,
        steps_per_second=status.steps_per_second,
        metrics=status.metrics,
        stalled_seconds=stalled_seconds,
        **used,
    )
