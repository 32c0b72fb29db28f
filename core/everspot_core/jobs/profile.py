"""A profile of a running job: some of its steps, recorded by torch's profiler.

The program's reports are not trusted: texts and lists are bounded, and impossible figures count as unknown.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from everspot_core.documents import Document, Stored, Utc
from everspot_core.jobs.records import JobRecord, JobState, Reason
from everspot_core.jobs.reported_values import Seconds, Step, Steps, Total, keep_within

DEFAULT_STEPS = 20
MOST_PROFILED_STEPS = 200
"""The most steps of one profile. A step of a large model has some ten thousand events."""
MOST_OPERATIONS = 100
"""The most operations of a profile. The most expensive ones are kept."""
PROFILE_FOLDER = "profile"
"""The folder below a job's outputs with the traces of its profiles."""
MOST_TRACE_BYTES = 64 << 20
"""The largest compressed trace that is kept."""
LIBRARY_ADVICE = (
    "everspot profile records steps of the trainer library and of Everspot's callbacks for Hugging Face, Lightning and "
    "Accelerate: use one of them, or torch.profiler in the program, which writes its trace below outputs/"
)
_LONGEST_TEXT = 300
_LONGEST_NAME = 160


def _cut(length: int) -> AfterValidator:
    return AfterValidator(lambda text: text if len(text) <= length else f"{text[: length - 1]}…")


class ProfileState(StrEnum):
    """The state of a profile. All but RECORDING are final."""

    RECORDING = "recording"
    DONE = "done"
    REFUSED = "refused"  # the program cannot be profiled
    FAILED = "failed"  # the profiler failed; training went on
    CUT_OFF = "cut-off"  # the attempt ended first

    @property
    def final(self) -> bool:
        """Whether the profile no longer changes."""
        return self is not ProfileState.RECORDING


class ProfileRequest(Document):
    """A user's request to profile one attempt of a job: `profiles/{job}.json` in the control bucket."""

    id: str = Field(pattern=r"^[0-9a-f]{8}$")
    epoch: int = Field(description="The attempt that is profiled.")
    steps: int = Field(default=DEFAULT_STEPS, ge=1, le=MOST_PROFILED_STEPS)
    at: Utc
    by: str = ""
    valid_until: Utc = Field(description="When the user stops waiting, so that another request may replace this one.")


def refuse_profile(job_id: str, record: JobRecord | None) -> str | None:
    """Return why a job cannot be profiled now, or None."""
    if record is None or record.state is JobState.PENDING:
        return f"{job_id} has no instance yet: it can be profiled while it runs"
    if record.away is not None:
        return f"{job_id} runs in the cluster {record.away.cluster}: profile {record.away.visit} there"
    if record.state.final:
        return f"{job_id} has already ended: {record.state.value}"
    return None


def describe_lost_profile(request: ProfileRequest, job_id: str, record: JobRecord | None) -> str | None:
    """Return why the attempt ended before its profile was done; None while it runs."""
    if record is not None and record.state.owned and record.epoch == request.epoch:
        return None
    if record is not None and record.state.final:
        return f"{job_id} has ended before its profile was done: {record.state.value}"
    reason = record.last_reason if record is not None else None
    cause = f" ({reason.value})" if isinstance(reason, Reason) else ""
    return (
        f"{job_id} was interrupted while it was being profiled{cause}: the job loses nothing by the profile, and goes "
        "on from its newest checkpoint; profile it again when it runs"
    )


class Operation(Stored):
    """An operation of the profiled steps, with the totals of all its calls."""

    name: Annotated[str, _cut(_LONGEST_NAME)]
    calls: Annotated[int, BeforeValidator(keep_within(0, 10**15, 0))] = 0
    cpu_seconds: Total = Field(default=None, description="Processor time without the operations that it calls.")
    gpu_seconds: Total = Field(default=None, description="The same of the GPU; None: no GPU was used.")


class DataLoading(Stored):
    """The data loading of the profiled steps."""

    wait_seconds: Seconds = Field(default=None, description="Time in which the loop waited for its next batch.")
    loader: Annotated[str, _cut(_LONGEST_NAME)] = Field(default="", description="The class of the loader.")
    workers: Annotated[int | None, BeforeValidator(keep_within(0, 10**6))] = Field(
        default=None, description="Its worker processes; None: not known."
    )


class Profile(Document):
    """The report on a profile: an object of the stream `profiles` in the data bucket."""

    id: str = Field(pattern=r"^[0-9a-f]{8}$", description="Of the request.")
    state: ProfileState
    message: Annotated[str, _cut(_LONGEST_TEXT)] = ""
    first_step: Steps = Field(default=None, description="The first recorded step.")
    steps: Step = Field(default=0, description="Steps that were recorded.")
    step_seconds: Seconds = Field(default=None, description="Mean time of a recorded step.")
    median_step_seconds: Seconds = Field(default=None, description="Median time of a recorded step.")
    plain_step_seconds: Seconds = Field(
        default=None, description="Median time of the steps right before and behind them, without profiler."
    )
    plain_steps: Step = Field(default=0, description="How many these are.")
    stopped_seconds: Seconds = Field(
        default=None, description="Time in which training stood still while the profiler started and ended."
    )
    ranks: Annotated[int, BeforeValidator(keep_within(1, 10**6, 1))] = 1
    data: DataLoading | None = None
    cpu_seconds: Total = Field(default=None, description="Processor time of all operations.")
    gpu_seconds: Total = Field(default=None, description="GPU time of all operations; None: no GPU was used.")
    operations: tuple[Operation, ...] = Field(
        default=(), max_length=MOST_OPERATIONS, description="The most expensive operations, in descending order."
    )
    # Of ASCII: with the letters of all scripts in it, this takes a tenth of the time in which an agent starts.
    trace: Annotated[str, Field(pattern=r"^([A-Za-z0-9_-][A-Za-z0-9_.-]{0,99})?$")] = Field(
        default="", description="The name of the trace, below outputs/profile/; empty: there is none."
    )
    trace_bytes: Annotated[int, BeforeValidator(keep_within(0, 10**12, 0))] = 0
    trace_note: Annotated[str, _cut(_LONGEST_TEXT)] = Field(default="", description="Why there is no trace.")

    @property
    def uses_gpu(self) -> bool:
        """Whether a GPU computed."""
        return bool(self.gpu_seconds)

    @property
    def data_wait_share(self) -> float | None:
        """The fraction of the recorded steps in which the loop waited for its next batch, from 0 to 1."""
        wait = self.data.wait_seconds if self.data is not None else None
        whole = (self.step_seconds or 0) * self.steps
        return min(1.0, wait / whole) if wait is not None and whole > 0 else None

    @property
    def slowdown(self) -> float | None:
        """The time that the profiler added to a step, as a fraction of a step without it; None: not known.

        A profiler makes no step faster: if the steps before were slower, the difference is noise and the result is 0.
        """
        recorded = self.median_step_seconds if self.median_step_seconds is not None else self.step_seconds
        if recorded is None or not self.plain_step_seconds:
            return None
        return max(0.0, recorded / self.plain_step_seconds - 1)

    @property
    def profiler_seconds(self) -> float | None:
        """The time that the whole profile cost the job; None: not known."""
        if self.slowdown is None or self.plain_step_seconds is None or self.stopped_seconds is None:
            return None
        return self.stopped_seconds + self.slowdown * self.plain_step_seconds * self.steps

    def share(self, operation: Operation) -> float | None:
        """Return an operation's fraction of the GPU time; without a GPU, of the processor time."""
        part, whole = operation.cpu_seconds, self.cpu_seconds
        if self.uses_gpu:
            part, whole = operation.gpu_seconds, self.gpu_seconds
        return min(1.0, part / whole) if part is not None and whole else None
