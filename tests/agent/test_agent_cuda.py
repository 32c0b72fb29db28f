"""CUDA is tried on each GPU before a job gets the machine. The driver's library is a small one, built here."""

import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from agent_helpers import Cluster
from everspot_core.jobs.records import InstanceState, JobState, Reason
from everspot_store import ManualClock
from everspot_train.agent.cuda import CudaFault, await_cuda, check_cuda

LIBRARY = Path(__file__).parent / "programs" / "libcuda.c"
NOT_READY = "802 8\n"
TYPE, GPUS = "p4d.24xlarge", 8

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture
def driver(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with eight GPUs that are sound for `nvidia-smi`. `TOY_CUDA`: the file with CUDA's
    answers."""
    folder = tmp_path / "driver"
    folder.mkdir()
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", LIBRARY], check=True)
    (folder / "nvidia-smi").write_text("#!/bin/sh\n" + 'echo "NVIDIA A100-SXM4-40GB, 40960"\n' * GPUS)
    (folder / "nvidia-smi").chmod(0o755)
    (folder / "answers").write_text(f"0 {GPUS}\n")
    path = f"{folder}:/usr/bin:/bin"
    return {"PATH": path, "LD_LIBRARY_PATH": str(folder), "TOY_CUDA": str(folder / "answers")}


def test_a_machine_whose_gpus_do_not_compute_is_cordoned_with_cudas_own_words(
    cluster: Cluster, driver: dict[str, str]
) -> None:
    Path(driver["TOY_CUDA"]).write_text(f"999 {GPUS}\n")
    server = cluster.metadata_server("i-1")
    server.pages["latest/meta-data/instance-type"] = TYPE
    cluster.start_with_metadata(server, "i-1", **driver)

    record = cluster.wait_instance("i-1", lambda record: record.state is InstanceState.CORDONED)

    assert (record.gpus, record.detail) == (GPUS, "CUDA error 999 on GPUs: broken")
    cluster.submit("job-1")
    cluster.assign("job-1", "i-1")
    job = cluster.wait_state("job-1", JobState.PENDING)
    assert (job.last_reason, job.errors) == (Reason.CORDON, 0)


def test_a_machine_whose_gpus_compute_takes_jobs(cluster: Cluster, driver: dict[str, str]) -> None:
    server = cluster.metadata_server("i-1")
    server.pages["latest/meta-data/instance-type"] = TYPE
    cluster.start_with_metadata(server, "i-1", **driver)
    record = cluster.wait_instance("i-1", lambda record: record.state is InstanceState.READY)
    assert (record.gpus, record.detail) == (GPUS, "")


@pytest.mark.parametrize(
    ("answers", "waited", "fault"),
    [
        (NOT_READY * 2 + "0 8\n", 20, None),
        (
            NOT_READY,
            120,
            CudaFault(
                802,
                "CUDA error 802 on GPUs: system not yet initialized; the fabric manager has not set the NVSwitch up",
            ),
        ),
        ("999 8\n", 0, CudaFault(999, "CUDA error 999 on GPUs: broken")),
        ("0 7\n", 0, CudaFault(None, "CUDA sees 7 of the 8 GPUs that the driver lists")),
    ],
    ids=["the switch is late", "the switch is never set up", "broken", "one GPU is missing"],
)
def test_only_the_set_up_of_the_switch_is_waited_for_and_for_two_minutes(
    driver: dict[str, str], monkeypatch: pytest.MonkeyPatch, answers: str, waited: int, fault: CudaFault | None
) -> None:
    Path(driver["TOY_CUDA"]).write_text(answers)
    for name, value in driver.items():
        monkeypatch.setenv(name, value)
    clock = ManualClock()
    assert await_cuda(GPUS, clock) == fault
    assert clock.monotonic() == timedelta(seconds=waited)


def test_without_a_driver_library_the_reason_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libcuda.so.1").write_text("not a library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    fault = check_cuda(1)
    assert fault is not None
    assert (fault.code, "libcuda.so.1" in fault.message) == (None, True)
    assert check_cuda(0) is None
