"""The events of a job. Times, costs, redone work and savings are computed from them."""

from enum import StrEnum

from pydantic import Field, JsonValue

from everspot_core.documents import Document, Utc

STOP_TRIGGER = "notice"
"""The stored trigger of a checkpoint that is made because the job has to stop, whatever the reason."""


class EventKind(StrEnum):
    """The kind of an event of a job. The keys of `Event.data` are given behind each kind."""

    SUBMITTED = "submitted"  # by the submitter
    ASSIGNED = "assigned"  # scheduler: instance_type, zone, market; share and gpus, if it has but a seat there
    STARTED = "started"  # agent: the training process is being launched; from_zero (how often by now), if it is;
    # again, step_before and shard_traffic (what the agent before had reported), by one that took it up again under the
    # same epoch
    TRAINING = "training"  # trainer: from_step, restored (bool), seconds (process start to first step ready);
    # agent, for a program that does not use the trainer: from_step (the first that it reported; 0: none), restored,
    # by "agent"
    STEPPED = "stepped"  # trainer, when a process has done its second step: step (the first one it did), seconds (that
    # one took), next_seconds (the one behind it)
    CHECKPOINTED = "checkpointed"  # trainer: step, bytes, seconds, trigger (interval|notice|rebalance|final);
    # agent, for the folder of a program that does not use the trainer: files, bytes, seconds, trigger (interval|final)
    CHECKPOINT_INTERVAL = "checkpoint_interval"  # trainer, chosen or changed: seconds (none, if the job counts in
    # steps), cause, reason; where a checkpoint takes longer than a notice: notice (a sentence), lost_steps; agent, for
    # the folder of a program that does not use the trainer: cause, reason, notice
    SKIPPED = "skipped"  # agent, of files that were not kept: folder (checkpoints|outputs), paths (at most 20), count,
    # reason; without paths, if it is not known which
    NOT_CHECKPOINTED = "not_checkpointed"  # agent: nothing was kept for this long: intervals, seconds, reason
    FELL_BACK = "fell_back"  # agent, the attempt before failed while it loaded a checkpoint, so this one resumes from
    # an older one: from_step, to_step, count (how often the job did so by now)
    PRECISION_CHANGED = "precision_changed"  # agent, the job changes to mixed precision, because its instance has less
    # GPU memory than it has used: before, after ("mixed"), used_gib (measured), gpu_memory_gib (of the instance)
    NOT_TRACKED = "not_tracked"  # trainer: the loop uses something that no checkpoint holds, once: what
    STALLED = "stalled"  # agent: step (none, if it reports none), seconds (real, without a step or a sign of life),
    # restarted (bool)
    UNDERUSED = "underused"  # agent: share (of the time in which its GPUs computed), limit (percent), span_seconds
    # (market, for which it was so), then (warn|end)
    STOP_DEMANDED = "notice"  # agent: source (metadata|queue|drill|drain|cancel|budget|underused|cap|window), action_at
    REBALANCE = "rebalance"  # agent: source
    INTERRUPTED = (
        "interrupted"  # agent: reason, step (last executed), durable_step, notice_to_durable_seconds (market);
    )
    # message, where the reason is machine, denied or damaged
    LOST = "lost"  # scheduler: cause (expired|terminated), step (last reported)
    ERROR = "error"  # agent: exit_code, signal (name), message, traceback, attempt, reason (error|missing|stalled)
    FINISHED = "finished"  # agent: step, metrics; message, if `stop` of its file ended it;
    # scheduler, of a job that was not run because of `cache`: also reused_from
    FAILED = "failed"  # the program that decided it: reason, message
    CANCELLED = "cancelled"  # the program that carried it out
    NOT_RUN = "not_run"  # scheduler, of a job that its `run_if`, or that of an earlier job, skips: reason, message
    DRILL = "drill"  # the submitter of the drill
    DEPARTED = "departed"  # scheduler of its home: cluster, visit, message
    RETURNED = "returned"  # scheduler of its home: cluster, visit, end, message, step, usd, egress_usd


class Event(Document):
    """An event of a job, written once and never changed."""

    job_id: str
    kind: EventKind
    at: Utc
    epoch: int = 0
    writer: str = Field(description="Instance id, scheduler id or 'cli': each numbers its own events.")
    seq: int = 0
    instance_id: str | None = None
    data: dict[str, JsonValue] = Field(default_factory=dict)
