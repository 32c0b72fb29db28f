"""A job's part of a machine, and faults of the machine, as tables without processes."""

from pathlib import Path

import pytest
from everspot_core.costs.ledger import FaultKind
from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.records import Reason
from everspot_train.agent.endings import judge_ending
from everspot_train.agent.failures import ERROR_FILE, Failure, read_failure
from everspot_train.agent.program import command_for, environment_for, too_many_threads
from everspot_train.rundir import Status, TrainingPhase

RUN = Path("/runs/job-1")
TMP = Path("/t/1")


def spec(processes: int | None = None, **resources: object) -> JobSpec:
    fields = {"name": "toy", "entrypoint": ["train.py"], "code": ".", "env": {"A": "b"}}
    return JobSpec.model_validate(fields | {"resources": resources, "processes": processes})


@pytest.mark.parametrize(
    ("resources", "processes", "visible", "threads"),
    [
        ({}, 1, "", "1"),
        ({"vcpus": 8}, 1, "", "8"),
        ({"vcpus": 64}, 1, "", "16"),  # at most the machine's vCPUs
        ({"gpus": 1}, 1, "0", "1"),
        ({"gpus": 1, "vcpus": 8}, 1, "0", "8"),
        ({"gpus": 4, "vcpus": 16}, 4, "0,1,2,3", "4"),
        ({"processes": 2, "vcpus": 8}, 2, "", "4"),
        ({"processes": 3}, 3, "", "1"),
        ({"processes": 1, "gpus": 4, "vcpus": 8}, 1, "0,1,2,3", "8"),
        ({"processes": 2, "gpus": 4, "vcpus": 8}, 2, "0,1,2,3", "4"),
    ],
)
def test_a_job_has_the_processes_gpus_and_threads_that_it_asked_for_whatever_the_machine_has(
    resources: dict[str, int], processes: int, visible: str, threads: str
) -> None:
    job = spec(**resources)
    command = command_for(job, None)
    assert (f"--nproc-per-node={processes}" in command) is ("everspot_train.launcher" in command) is (processes > 1)
    env = environment_for(
        job, {"HOME": "/var/lib/everspot", "EVERSPOT_HOME": "/h"}, 16, RUN, RUN / "code", Path("/t/1")
    )
    assert (env["CUDA_VISIBLE_DEVICES"], env["OMP_NUM_THREADS"]) == (visible, threads)
    assert (env["HOME"], env["TMPDIR"]) == ("/runs/job-1/home", "/t/1")
    assert env["EVERSPOT_CHECKPOINT_DIR"] == "/runs/job-1/code/checkpoints"
    assert (env["A"], env["EVERSPOT_HOME"]) == ("b", "/h")
    assert env.get("WORLD_SIZE") == ("1" if processes == 1 else None)  # torchrun says it to each of several


def test_no_job_tells_a_clouds_clients_of_the_instance_whose_they_are() -> None:
    job = spec().model_copy(update={"env": {"A": "b", "AWS_PROFILE": "mine", "AWS_REGION": "x"}})
    env = environment_for(job, {"AWS_REGION": "us-east-1"}, 16, RUN, RUN / "code", TMP)
    assert (env["A"], env["AWS_REGION"], env.get("AWS_PROFILE")) == ("b", "us-east-1", None)


@pytest.mark.parametrize(
    ("resources", "omp_threads", "expected"),
    [
        ({"vcpus": 4}, "4", None),
        ({"vcpus": 4}, "1", None),
        ({"vcpus": 4}, "2,2", None),
        ({"vcpus": 4}, "8", "OMP_NUM_THREADS=8 in each of 1 process is more than the job's share of 4 vCPUs"),
        ({"vcpus": 32}, "32", "share of 16 vCPUs"),
        ({"vcpus": 8, "processes": 2}, "8", "in each of 2 processes is more than the job's share of 8 vCPUs"),
        ({"vcpus": 8, "gpus": 4}, "8", "in each of 4 processes is more than the job's share of 8 vCPUs"),
    ],
)
def test_the_users_own_threads_are_kept_and_more_than_its_vcpus_are_reported(
    resources: dict[str, int], omp_threads: str, expected: str | None
) -> None:
    job = spec(**resources).model_copy(update={"env": {"OMP_NUM_THREADS": omp_threads}})
    assert environment_for(job, {}, 16, RUN, RUN / "code", TMP)["OMP_NUM_THREADS"] == omp_threads
    warning = too_many_threads(job, 16)
    assert warning is None if expected is None else warning is not None and expected in warning
    assert too_many_threads(spec(**resources), 16) is None


def test_torchrun_waits_as_long_as_the_agent_does() -> None:
    (option,) = [part for part in command_for(spec(gpus=2), None) if part.startswith("--shutdown-timeout=")]
    assert int(option.partition("=")[2]) >= 600


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", FaultKind.GPUS),
        ("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", FaultKind.GPUS),
        ("Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.", FaultKind.GPUS),
        ("OSError: [Errno 28] No space left on device: '/x'", FaultKind.DISK),
        ("RuntimeError: CUDA error: device-side assert triggered", None),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", None),
        ("torch.OutOfMemoryError: CUDA out of memory", None),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", FaultKind.GPUS),
        ("Xid (PCI:0000:3b:00): 63", FaultKind.GPUS),
        ("KeyError: 'xid'", None),
        ("failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", None),
    ],
)
def test_a_fault_of_the_machine_is_told_from_one_of_the_program(message: str, fault: FaultKind | None) -> None:
    ending = judge_ending(None, 1, None, Failure(message=message, gpus=1))
    assert ending.fault is fault
    assert ending.reason is (Reason.MACHINE if fault else Reason.ERROR)
    assert ending.unstarted is (fault is not None)


def test_the_output_of_a_job_without_gpus_shows_no_failed_gpu() -> None:
    failure = Failure(message="RuntimeError: CUDA error: uncorrectable ECC error encountered")
    ending = judge_ending(None, 1, None, failure)
    assert (ending.reason, ending.fault) == (Reason.ERROR, None)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("CheckpointCorrupt: job a: no checkpoint is whole: step 2: gone; step 1: gone", Reason.DAMAGED),
        ("everspot_store.errors.StoreDenied: 403", Reason.DENIED),
        ("StoreUnavailable: 503", Reason.SHUTDOWN),
        ("everspot_store.errors.StoreBusy: 429 Too Many Requests", Reason.SHUTDOWN),
        (
            "RuntimeError: Caught StoreUnavailable in DataLoader worker process 0.\nStoreUnavailable: 503",
            Reason.SHUTDOWN,
        ),
        ("RuntimeError: Caught KeyError in DataLoader worker process 0.\nStoreUnavailable: 503", Reason.ERROR),
        ("NonFiniteLoss: the loss is nan at step 3", Reason.ERROR),
    ],
)
def test_the_stores_troubles_are_reasons_of_their_own(message: str, reason: Reason) -> None:
    assert judge_ending(None, 1, Status(phase=TrainingPhase.FAILED, message=message)).reason is reason
    assert judge_ending(None, 1, None, Failure(message=message)).reason is reason


def test_a_full_disk_is_one_whatever_the_program_made_of_it() -> None:
    ending = judge_ending(None, -6, None, Failure(message="RuntimeError: unexpected pos 64 vs 0", disk_full=True))
    assert (ending.reason, ending.message) == (Reason.MACHINE, "the machine's disk is full")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"message": 5}', '{"message": {"errorCode": "x"}}', "\xff\xfe"])
def test_an_error_file_that_is_none_is_silence(tmp_path: Path, text: str) -> None:
    (tmp_path / ERROR_FILE).write_bytes(text.encode("latin-1"))
    failure = read_failure(tmp_path, "the tail")
    assert (failure.exit_code, failure.message, failure.tail) == (None, "", "the tail")
