"""The run directory: small JSON files through which the agent and its training process exchange messages.

Each file has one writer and is replaced whole (temporary file and rename), so a reader sees the old document or the
new one and never half of one. Moments are CLOCK_MONOTONIC seconds, since both sides are on one machine. torch is not
imported here, because the agent uses this module too.
"""

import errno
import os
import secrets
import stat
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, ClassVar, TypeVar

from everspot_core.capacity.market import Market
from everspot_core.costs.pool_history import USUAL_HOURS
from everspot_core.documents import Document, Duration, Utc
from everspot_core.jobs.early_stop import EarlyStop
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.profile import DEFAULT_STEPS, Profile
from everspot_core.jobs.records import Reason
from everspot_core.jobs.reported_values import Gib, PerEpoch, Rate, Seconds, Step, Steps
from everspot_core.jobs.step_lines import LONGEST_NAME, MOST_NAMES
from everspot_core.jobs.tracking import Spending
from pydantic import AfterValidator, Field, ValidationError

from everspot_train.device_edits import DeviceEdits
from everspot_train.masking import masked, own_secrets

RUN_DIR_VARIABLE = "EVERSPOT_RUN_DIR"
OUTPUT_DIR_VARIABLE = "EVERSPOT_OUTPUT_DIR"
"""The folder whose files are kept when an attempt ends."""

CHECKPOINT_DIR_VARIABLE = "EVERSPOT_CHECKPOINT_DIR"
"""The folder whose files are kept with each checkpoint."""
COMPLETE_MARKER = ".everspot-complete"
"""A file that a program writes, or touches, behind all others of a checkpoint: in the checkpoint's folder, or in this
folder itself for the loose files."""
USER_FILE, USER_TREE = "user-", "user-tree.json"
"""The beginning of the names of those parts of a checkpoint that are files of this folder, and their description."""
RESTORED = "restored"
"""The folder, in the scratch folder, in which the trainer library puts a checkpoint while it loads it."""


class RunDirError(Exception):
    """A file of the run directory is there but is not what it should be."""


class RunFile(Document):
    """A document in one file of the run directory."""

    file_name: ClassVar[str]


class RunContext(RunFile):
    """Agent → trainer, once: the job, the ownership, and where its state is kept."""

    file_name = "run.json"

    job_id: str
    epoch: int
    incarnation: int = Field(default=0, description="Of the lease: which agent under this epoch started the trainer.")
    instance_id: str
    control_url: str
    data_url: str | None = Field(default=None, description="None: what cluster.json in the control bucket says.")
    submission: JobSubmission
    code_dir: str | None = Field(default=None, description="The user's unpacked code; None for recipes.")
    cloud: str = Field(description="The cluster's: which cloud is asked for secrets.")
    region: str = Field(default="", description="The cluster's.")
    cache_dir: str | None = Field(default=None, description="Where datasets and packages are kept for later jobs.")
    scratch_dir: str = Field(description="Where checkpoints are written before they are uploaded.")
    hours_between_interruptions: float = Field(
        default=USUAL_HOURS[Market.SPOT],
        gt=0,
        allow_inf_nan=False,
        description="Mean time between two interruptions of an instance of this pool, market time.",
    )
    notice: Duration | None = Field(
        default=None,
        description="How long before an interruption this instance can know of it, market time; None: not known.",
    )
    notice_reserve: Duration = Field(
        default=timedelta(0),
        description="The part of it in which no checkpoint is written, real time: until the agent finds the notice, "
        "and from when on it kills what still runs.",
    )
    memory_dir: str | None = Field(
        default=None,
        description="A folder in memory, where the tensors of checkpoints wait for their upload; None: scratch_dir. It "
        "may hold those of an earlier attempt.",
    )
    interruptions: int = Field(default=0, description="How often the job has lost its instance so far.")
    spending: Spending | None = Field(default=None, description="Of a job with `tracking`; None: not known.")
    mixed: bool = Field(
        default=False, description="Of a job with mixed_on_failover: train in mixed precision from now on."
    )
    devices: DeviceEdits | None = Field(default=None, description="The GPUs of a job with an image; None: it has none.")


def read_context(rundir: "RunDir") -> RunContext:
    """Return the run that the agent describes.

    Raises:
        RunDirError: if it describes none.
    """
    context = rundir.read(RunContext)
    if context is None:
        raise RunDirError(
            f"{rundir.file_path(RunContext)} is missing: the agent writes it before it starts the trainer"
        )
    return context


class Ready(RunFile):
    """Preparing process → agent, once: everything is prepared, and the job's program is being started."""

    file_name = "ready.json"

    at: Utc = Field(description="Market time.")
    since: float = Field(description="CLOCK_MONOTONIC seconds.")


class LeaseFile(RunFile):
    """Agent → trainer, rewritten at every renewal. After `valid_until` the trainer publishes and deletes nothing, but
    trains on, because the store may be silent. If the lease is `lost`, it ends."""

    file_name = "lease.json"

    valid_until: float = Field(description="CLOCK_MONOTONIC seconds.")
    lost: bool = Field(default=False, description="The job has, or may soon have, another owner; this is for good.")


class StopRequest(RunFile):
    """Agent → trainer: end the step, checkpoint durably, exit with phase `stopped`."""

    file_name = "stop.json"

    reason: Reason
    deadline: float | None = Field(default=None, description="CLOCK_MONOTONIC seconds; after it the instance is gone.")
    term_at: float | None = Field(default=None, description="CLOCK_MONOTONIC seconds; SIGTERM is sent then.")


class CheckpointRequest(RunFile):
    """Agent → trainer: checkpoint now and go on. A new request has a higher `seq`."""

    file_name = "checkpoint.json"

    seq: int


class SavedState(RunFile):
    """Program on an integration of a framework → agent: the newest checkpoint that it has saved itself."""

    file_name = "saved.json"

    step: Step = Field(description="Optimizer steps that the checkpoint holds.")
    path: str = Field(description="The file or folder, relative to the folder `checkpoints`.")


class StopReport(RunFile):
    """Program on the trainer library, or on an integration of a framework → agent: it carries out the job's `stop`
    itself. Without this file the agent does, by the steps that the program prints."""

    file_name = "early-stop.json"

    early_stop: EarlyStop | None = Field(default=None, description="Why training ends before its last step.")


class ProfileOrder(RunFile):
    """Agent → program, for a user: record some steps with torch's profiler. A new order has another id."""

    file_name = "profile-order.json"

    id: str
    steps: int = DEFAULT_STEPS


class ProfileReport(RunFile):
    """Program on the trainer library, or on an integration of a framework → agent: it carries out profile orders.
    Without this file it does not."""

    file_name = "profile.json"

    profile: Profile | None = Field(default=None, description="Of the last order; None: there was none.")


class TrainingPhase(StrEnum):
    """The phase of the training process. The last four are final: the process ends right after them."""

    STARTING = "starting"
    RESTORING = "restoring"
    TRAINING = "training"
    CHECKPOINTING = "checkpointing"  # stops for it; checkpoints at an interval are uploaded while training goes on
    STOPPED = "stopped"  # as told by stop.json; `durable_step` equals `step`
    FINISHED = "finished"  # trained to the end, and the final checkpoint is durable
    FENCED = "fenced"  # the job has another owner: nothing was published
    FAILED = "failed"  # `message` says why

    @property
    def final(self) -> bool:
        """Whether this is the training process's last report."""
        return self in (TrainingPhase.STOPPED, TrainingPhase.FINISHED, TrainingPhase.FENCED, TrainingPhase.FAILED)


def restrict_metrics(metrics: dict[str, float], counts: Mapping[str, int] | None = None) -> dict[str, float]:
    """Return the metrics that the job's record takes, which the whole cluster reads and terminals show.

    Args:
        metrics: The last value of each metric.
        counts: How often each was reported. Of too many metrics those with the lowest counts are taken: an evaluation
            rather than the figures of each layer at each step.
    """
    names = [name for name in metrics if len(name) <= LONGEST_NAME and name.isprintable()]
    recorded_names = set(sorted(names, key=lambda name: (counts or {}).get(name, 0))[:MOST_NAMES])
    return {name: metrics[name] for name in names if name in recorded_names}


class Status(RunFile):
    """Trainer → agent: its progress. `step` counts optimizer steps since the job's very beginning."""

    file_name = "status.json"

    phase: TrainingPhase = TrainingPhase.STARTING
    step: Step = 0
    total_steps: Steps = None
    steps_per_epoch: PerEpoch = Field(
        default=None, description="Steps that read the loader once; None: the loader does not know its length."
    )
    steps_per_second: Rate = Field(default=None, description="Steps per real second, recent mean.")
    metrics: Annotated[dict[str, float], AfterValidator(restrict_metrics)] = Field(default_factory=dict)
    durable_step: Steps = Field(default=None, description="Step of the newest published checkpoint.")
    durable_at: Utc | None = Field(default=None, description="When it was published: market time.")
    resumed_from: Steps = Field(default=None, description="Step of the checkpoint this process started from.")
    gpu_memory_gib: Gib = Field(
        default=None,
        description="The most that torch has reserved on one GPU of this process, GiB; None: it uses none.",
    )
    mixed: bool | None = Field(default=None, description="Whether it trains in mixed precision.")
    loop_steps: Steps = Field(default=None, description="Steps of this process; None: no step is over yet.")
    loop_seconds: Seconds = Field(default=None, description="Real time that its loop took for them.")
    data_wait_seconds: Seconds = Field(
        default=None, description="The part of it in which the loop waited for the next batch."
    )
    message: str = ""
    complete: bool | None = Field(
        default=None,
        description="At the end: whether all steps are done or the program said that it is finished; None: not told.",
    )
    cut_off: bool = Field(default=False, description="Failed for want of the store: no error of the job's own.")


MOST_BYTES = 64 << 20
"""The most bytes of a document that are read. A submission may be large; anything larger is not a document of ours."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    The job may have put anything in its place: a pipe or a terminal is not waited for.

    Raises:
        OSError: if it is no regular file or cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return os.fdopen(handle, "rb")


def read_regular(path: Path, most: int) -> bytes:
    """Read at most `most` bytes of a regular file. Raises `OSError`, as `open_regular`."""
    with open_regular(path) as file:
        return file.read(most)


def append_regular(path: Path, data: bytes) -> None:
    """Append to a regular file, which is made if nothing is there. Raises `OSError`, as `open_regular`."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        file.write(data)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file as a whole.

    The temporary file is new and has a name that nobody can guess: opening a pipe that the job has put there would wait
    for ever.

    Raises:
        OSError: if it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


FileT = TypeVar("FileT", bound=RunFile)


class RunDir:
    """One run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def from_environment(cls) -> "RunDir | None":
        """The directory named by EVERSPOT_RUN_DIR; None if no agent started this process."""
        value = os.environ.get(RUN_DIR_VARIABLE)
        return cls(Path(value)) if value else None

    def file_path(self, kind: type[RunFile]) -> Path:
        """The file for documents of this kind."""
        return self.path / kind.file_name

    def read(self, kind: type[FileT]) -> FileT | None:
        """The document of this kind; None if it has not been written.

        Raises:
            RunDirError: if the file holds something else, or cannot be read.
        """
        path = self.file_path(kind)
        try:
            return kind.read(read_regular(path, MOST_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, ValidationError, RecursionError) as error:
            raise RunDirError(f"{path} is not a {kind.__name__}: {error}") from error

    def write(self, document: RunFile) -> None:
        """Replace the document of this kind as a whole. Secrets are removed from the message of a status, which may be
        an exception's, because the agent passes it on."""
        if isinstance(document, Status) and document.message:
            document = document.model_copy(update={"message": masked(document.message, own_secrets())})
        path = self.file_path(type(document))
        replace_file(path, document.to_json())

    def remove(self, kind: type[RunFile]) -> None:
        """Delete the document of this kind, if there is one."""
        self.file_path(kind).unlink(missing_ok=True)
