"""Jobs with `image` in the pod of an agent: by runc, with the user, the capabilities and the seccomp profile of the
declared pod."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_helpers import FAST, eventually
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import JobState, Reason
from oci_layout import write_python_image
from pod_container import PodCluster, agents_pod, open_folder, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
PROGRAMS = Path(__file__).parent / "programs" / "container"


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layout") / "image"
    write_python_image(folder)
    return folder


@pytest.fixture
def start() -> Iterator[Callable[..., PodCluster]]:
    """Open a cluster whose agents are pods with or without the setting."""
    with open_folder() as folder:
        clusters: list[PodCluster] = []

        def open_cluster(*, job_images: bool) -> PodCluster:
            clusters.append(PodCluster(folder, FAST, pod=agents_pod(job_images=job_images)))
            return clusters[0]

        yield open_cluster
        for cluster in clusters:
            cluster.close()


def submit(cluster: PodCluster, layout: Path, program: str, **fields: Any) -> None:
    dataset = cluster.store.datasets.put("my-image", layout)
    code = cluster.root / "code"
    code.mkdir()
    (code / "main.py").write_text((PROGRAMS / program).read_text())
    spec = JobSpec(name="toy", entrypoint=["main.py"], code=str(code), image="my-image", **fields)
    job = JobSubmission(job_id="job-1", spec=spec, submitted_at=cluster.clock.now(), datasets=[dataset.id])
    cluster.store.submit(job, code)


def printed_documents(cluster: PodCluster) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cluster.printed().splitlines() if line.startswith("{")]


@pytest.mark.nightly
def test_a_job_with_an_image_is_evicted_and_goes_on_in_the_next_pod(
    start: Callable[..., PodCluster], layout: Path, tmp_path: Path
) -> None:
    cluster = start(job_images=True)
    submit(cluster, layout, "main.py", env={"OWN": "of the job"})
    cluster.assign("job-1", "i-1")
    first = cluster.start_agent("i-1", EVERSPOT_STOP_SECONDS="20")
    step = lambda: (record := cluster.record("job-1")) is not None and record.progress.step == 20  # noqa: E731
    eventually("it is at its twentieth step", step)
    first.popen.send_signal(signal.SIGTERM)  # runc passes it to the container's first process, as an eviction does
    assert cluster.wait_state("job-1", JobState.PENDING).last_reason is Reason.SHUTDOWN
    cluster.assign("job-1", "i-2")
    cluster.start_agent("i-2")
    cluster.wait_state("job-1", JobState.SUCCEEDED)
    outputs = cluster.store.outputs("job-1")
    (steps,) = [output for output in outputs.list() if output.path == "steps"]
    outputs.fetch(steps, tmp_path / "fetched")
    assert (tmp_path / "fetched" / "steps").read_text() == "20 40"
    before, after = printed_documents(cluster)
    assert before == after
    assert (before["marker"], before["uid"], before["capabilities"]) == ("of the image", 10001, 0)
    assert not before["of_machine"] and not before["root_writable"] and before["tmp_writable"]


def test_a_job_with_an_image_cannot_reach_its_agent_or_other_parts_of_the_kernel(
    start: Callable[..., PodCluster], layout: Path
) -> None:
    """Given the calls of containers that the profile allows, when a job tries others, then all are refused: other
    namespaces, other file systems, and the files of the agent, with whose token it would get the agents' role."""
    cluster = start(job_images=True)
    submit(cluster, layout, "tries.py")
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    cluster.wait_state("job-1", JobState.SUCCEEDED)
    (answers,) = printed_documents(cluster)
    assert answers.pop("clone3") == "ENOSYS"  # the C library then calls clone
    assert set(answers.values()) <= {"EPERM", "EACCES"}, answers


def test_a_pod_without_the_setting_makes_no_container_and_says_so(
    start: Callable[..., PodCluster], layout: Path
) -> None:
    cluster = start(job_images=False)
    submit(cluster, layout, "main.py", retries={"errors": 0})
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    record = cluster.wait_state("job-1", JobState.FAILED)
    assert "this machine makes no container: the kernel gives no namespaces, EPERM" in record.detail
