"""Makes a job's command line and environment: its processes, their threads and GPUs, and its own folders."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from everspot_clouds.registry import job_rules
from everspot_core.jobs.job import JobSpec, JobSubmission

from everspot_train.agent.failures import ERROR_FILE
from everspot_train.rundir import CHECKPOINT_DIR_VARIABLE, OUTPUT_DIR_VARIABLE
from everspot_train.sound_end import ENDED_DIR_VARIABLE
from everspot_train.worker import ERROR_FILE_VARIABLE

LAUNCHER_VARIABLE = "EVERSPOT_LAUNCHER"
"""The variable with a command that replaces torchrun, or python for a job of one process. For debugging and tests."""
ALONE = {
    "RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "ROLE_RANK": "0",
    "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "1", "ROLE_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.1", "MASTER_PORT": "0",
}  # fmt: skip
"""The variables with which torchrun would start the only process of a job, for its process group. It listens on the
loopback interface, on any free port (port 0), because no other process connects."""
SHUTDOWN_SECONDS = 3600
"""torchrun's limit between SIGTERM and SIGKILL. Its default is 30 s. This is longer than any time that the agent
grants, because the agent limits the time by the notice."""
SHUTDOWN_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
"""The variable with the same limit, for a torchrun that the program starts, as `accelerate launch` does."""
CHECKPOINTS, OUTPUTS = "checkpoints", "outputs"
HOME = "home"
ENDED = "ended"
"""The folder of the run directory with a file for each process of the program that ended without an error."""
THREADS_VARIABLE = "OMP_NUM_THREADS"


def thread_count(spec: JobSpec, vcpus: int) -> int:
    """Return the threads of each process: the job's vCPUs, at most the machine's `vcpus`, divided among its
    processes."""
    return max(1, min(spec.resources.vcpus, vcpus) // spec.process_count)


def too_many_threads(spec: JobSpec, vcpus: int) -> str | None:
    """Return a warning for the log if a job asks for more threads than it has vCPUs; otherwise None."""
    try:
        requested = int(spec.env.get(THREADS_VARIABLE, "0"))
    except ValueError:  # a list, one number for each level of nesting
        return None
    fitting, processes = thread_count(spec, vcpus), spec.process_count
    if requested <= fitting:
        return None
    return (
        f"{THREADS_VARIABLE}={requested} in each of {processes} process{'es' if processes > 1 else ''} is more than "
        f"the job's share of {min(spec.resources.vcpus, vcpus)} vCPUs: threads that wait for each other spin. Without "
        f"the variable each has {fitting}"
    )


def command_for(spec: JobSpec, launcher: str | None) -> list[str]:
    """Return the command line of a job on one machine. A job of one process runs without torchrun, whose import of
    torch would take seconds and some hundred MiB."""
    processes = spec.process_count
    if spec.image is not None and spec.entrypoint is not None:
        return [*_image_command(processes), *spec.entrypoint]
    if launcher:
        head = shlex.split(launcher)
    elif processes == 1:
        head = [sys.executable]
    else:
        head = [sys.executable, "-m", "everspot_train.launcher", *_torchrun_options(processes)]
    head += ["-m", "everspot_train.worker"]
    if spec.recipe is not None:
        return [*head, "-m", f"everspot_train.recipes.{spec.recipe.replace('-', '_')}"]
    assert spec.entrypoint is not None  # noqa: S101  JobSpec demands one of the two
    return [*head, *spec.entrypoint]


def _torchrun_options(processes: int) -> list[str]:
    return ["--standalone", f"--nproc-per-node={processes}", f"--shutdown-timeout={SHUTDOWN_SECONDS}"]


def _image_command(processes: int) -> list[str]:
    """Return the beginning of the command of a job with an image, which contains Python and torch."""
    if processes == 1:
        return ["python3"]
    return ["python3", "-m", "torch.distributed.run", *_torchrun_options(processes)]


def needs_preparation(submission: JobSubmission) -> bool:
    """Return whether the job has data, packages, set-up, secrets or an image to prepare before its program starts."""
    spec = submission.spec
    inputs = submission.datasets or submission.after or submission.wheels
    return bool(inputs or spec.setup or spec.secrets or spec.image)


def prepared(submission: JobSubmission, command: list[str]) -> list[str]:
    """Return the command, preceded by the preparation if the job needs one."""
    if not needs_preparation(submission):
        return command
    return [sys.executable, "-m", "everspot_train.prepare", *command]


def environment_for(
    spec: JobSpec,
    base: Mapping[str, str],
    vcpus: int,
    folder: Path,
    cwd: Path,
    temporary: Path,
    gpus: Sequence[int] | None = None,
) -> dict[str, str]:
    """Return the environment of the job's program.

    It is the agent's environment, overridden first by the variables that follow from the job's `resources`, then by its
    `env`, and then by Everspot's and the clouds' variables, which jobs cannot set. `folder`: the run directory.
    `temporary`: the job's temporary directory. `gpus`: the job's own GPUs on a shared machine.

    The number of threads depends on the job and not on the machine. So it is the same wherever the job runs, a resume
    computes the same numbers, and two jobs that share a machine do not spin against each other.
    """
    derived = {
        THREADS_VARIABLE: str(thread_count(spec, vcpus)),
        "PYTHONUNBUFFERED": "1",
        SHUTDOWN_VARIABLE: str(SHUTDOWN_SECONDS),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order in which the GPUs were counted
        "CUDA_VISIBLE_DEVICES": ",".join(
            str(index) for index in (range(spec.resources.gpus) if gpus is None else gpus)
        ),
        "HOME": str(folder / HOME),
        "TMPDIR": str(temporary),
    }
    reserved = job_rules().reserved
    job_variables = {name: value for name, value in spec.env.items() if not name.startswith(reserved)}
    reserved_variables = {name: value for name, value in base.items() if name.startswith(reserved)}
    reserved_variables[ERROR_FILE_VARIABLE] = str(folder / ERROR_FILE)
    reserved_variables[ENDED_DIR_VARIABLE] = str(folder / ENDED)
    reserved_variables[CHECKPOINT_DIR_VARIABLE] = str(cwd / CHECKPOINTS)
    reserved_variables[OUTPUT_DIR_VARIABLE] = str(cwd / OUTPUTS)
    alone = ALONE if spec.process_count == 1 else {}
    return {**base, **derived, **alone, **job_variables, **reserved_variables}
