"""A job's program as a command line and an environment: as many processes as it asked for GPUs, and room of its own."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from everspot_clouds.registry import job_rules
from everspot_core.job import JobSpec, JobSubmission

from everspot_train.agent.failures import ERROR_FILE
from everspot_train.rundir import OUTPUT_DIR_VARIABLE
from everspot_train.worker import ERROR_FILE_VARIABLE

LAUNCHER_VARIABLE = "EVERSPOT_LAUNCHER"
"""Replaces torchrun, and python where a job has one process: debugging, tests."""
ALONE = {
    "RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "ROLE_RANK": "0",
    "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "1", "ROLE_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.1", "MASTER_PORT": "0",
}  # fmt: skip
"""What torchrun tells the only process of a job, so that one that opens a process group can. Whoever is alone in it
listens on the loopback interface, on a port that nobody needs to know: any that is free, which is port 0."""
CHECKPOINT_DIR_VARIABLE = "EVERSPOT_CHECKPOINT_DIR"
SHUTDOWN_SECONDS = 3600
"""torchrun kills what does not heed its SIGTERM within 30 s by default. How long a program may take is the agent's to
say, by the notice; this is beyond what it ever grants."""
CHECKPOINTS, OUTPUTS = "checkpoints", "outputs"
HOME, TEMPORARY = "home", "tmp"
THREADS_VARIABLE = "OMP_NUM_THREADS"


def processes_of(spec: JobSpec) -> int:
    """One process for each GPU that the job asked for, whatever the machine has; one without GPUs."""
    return max(1, spec.resources.gpus)


def threads_of(spec: JobSpec, vcpus: int) -> int:
    """Threads of each process: the job's vCPUs, as far as a machine with `vcpus` has them, shared by its processes."""
    return max(1, min(spec.resources.vcpus, vcpus) // processes_of(spec))


def too_many_threads(spec: JobSpec, vcpus: int) -> str | None:
    """What the log says of a job that asks for more threads than it has vCPUs; None if it does not."""
    try:
        asked = int(spec.env.get(THREADS_VARIABLE, "0"))
    except ValueError:  # a list, one number for each level of nesting
        return None
    fitting, processes = threads_of(spec, vcpus), processes_of(spec)
    if asked <= fitting:
        return None
    return (
        f"{THREADS_VARIABLE}={asked} in each of {processes} process{'es' if processes > 1 else ''} is more than the "
        f"job's share of {min(spec.resources.vcpus, vcpus)} vCPUs: threads that wait for each other spin. Without "
        f"the variable each has {fitting}"
    )


def command_for(spec: JobSpec, launcher: str | None) -> list[str]:
    """The command line of a job on one machine. One process needs no torchrun, which would import torch first, for
    seconds and some hundred MiB, only to have it imported again."""
    processes = processes_of(spec)
    if launcher:
        head = shlex.split(launcher)
    elif processes == 1:
        head = [sys.executable]
    else:
        torchrun = ["--standalone", f"--nproc-per-node={processes}", f"--shutdown-timeout={SHUTDOWN_SECONDS}"]
        head = [sys.executable, "-m", "everspot_train.launcher", *torchrun]
    head += ["-m", "everspot_train.worker"]
    if spec.recipe is not None:
        return [*head, "-m", f"everspot_train.recipes.{spec.recipe.replace('-', '_')}"]
    assert spec.entrypoint is not None  # noqa: S101  JobSpec demands one of the two
    return [*head, *spec.entrypoint]


def brings_along(submission: JobSubmission) -> bool:
    """Whether the job asks for anything that has to be made ready before its program starts."""
    spec = submission.spec
    return bool(submission.datasets or submission.after or submission.wheels or spec.setup or spec.secrets)


def prepared(submission: JobSubmission, command: list[str]) -> list[str]:
    """The command, behind the process that makes ready what the job asks for; itself where the job asks for nothing."""
    if not brings_along(submission):
        return command
    return [sys.executable, "-m", "everspot_train.prepare", *command]


def environment_for(
    spec: JobSpec, base: Mapping[str, str], vcpus: int, folder: Path, cwd: Path, gpus: Sequence[int] | None = None
) -> dict[str, str]:
    """The agent's own environment, then what the job asked for in `resources`, then its `env`, and ours over all of
    them where the two sides rely on it, or where a cloud's clients look. `folder`: the run directory. `gpus`: its own,
    where it shares the machine.

    Threads are the job's share and not the machine's: what it asked for is the same wherever it runs, so that a resume
    computes the same numbers, and two jobs that share a machine do not spin against each other.
    """
    asked = {
        THREADS_VARIABLE: str(threads_of(spec, vcpus)),
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order in which the GPUs were counted
        "CUDA_VISIBLE_DEVICES": ",".join(
            str(index) for index in (range(spec.resources.gpus) if gpus is None else gpus)
        ),
        "HOME": str(folder / HOME),
        "TMPDIR": str(folder / TEMPORARY),
    }
    reserved = job_rules().reserved
    wanted = {name: value for name, value in spec.env.items() if not name.startswith(reserved)}
    ours = {name: value for name, value in base.items() if name.startswith(reserved)}
    ours[ERROR_FILE_VARIABLE] = str(folder / ERROR_FILE)
    ours[CHECKPOINT_DIR_VARIABLE] = str(cwd / CHECKPOINTS)
    ours[OUTPUT_DIR_VARIABLE] = str(cwd / OUTPUTS)
    alone = ALONE if processes_of(spec) == 1 else {}
    return {**base, **asked, **alone, **wanted, **ours}
