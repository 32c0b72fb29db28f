"""Jobs on the local Kubernetes with the real Karpenter: whatever ends a job's pod, the job goes on in the next one, and
a warning is enough to lose no step."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e_helpers import PROGRAMS, everspot
from e2e_kubernetes import LACKS_PROGRAMS, MISSING, NAMESPACE, KubernetesLive
from everspot_core.capacity.market import Market
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import Event, EventKind, JobState, Role
from oci_layout import write_python_image

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(LACKS_PROGRAMS, reason=MISSING),
]
ROOT = Path(__file__).resolve().parents[2]
STEPS, SECONDS = 60, 0.5
PART = {"vcpus": 1, "memory_gib": 0.25, "shared": True}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesLive]:
    with KubernetesLive(tmp_path_factory.mktemp("kubernetes")) as cluster:
        yield cluster


def notice(live: KubernetesLive, pod: str) -> None:
    live.cloud.do("interrupt", instance=live.node_of(pod))


def eviction(live: KubernetesLive, pod: str) -> None:
    live.evict(pod)


def deletion(live: KubernetesLive, pod: str) -> None:
    live.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}")


def drain(live: KubernetesLive, pod: str) -> None:
    live.api.patch(f"/api/v1/nodes/{live.node_of(pod)}", {"spec": {"unschedulable": True}})
    live.evict(pod)


def trainings(live: KubernetesLive, job: str) -> list[Event]:
    """The beginnings of a job's attempts, once it has succeeded; it has met errors in none."""
    assert live.until(lambda: live.ended(job)) is JobState.SUCCEEDED
    record = live.store.records.get(job)
    assert record is not None and record.value.errors == 0
    began = live.list_events(job, EventKind.TRAINING)
    assert record.value.preemptions == len(began) - 1
    return began


def lost_nothing(live: KubernetesLive, job: str, began: list[Event]) -> None:
    """Check that the second of two attempts began at the step at which the first was interrupted."""
    (interruption,) = live.list_events(job, EventKind.INTERRUPTED)
    assert began[1].data["from_step"] == interruption.data["step"] == interruption.data["durable_step"] >= 5
    assert began[0].instance_id != began[1].instance_id


@pytest.mark.parametrize("end", [notice, eviction, deletion, drain], ids=lambda end: end.__name__)
def test_a_pod_that_is_warned_loses_no_step(live: KubernetesLive, end: Callable[[KubernetesLive, str], None]) -> None:
    job = live.submit_toy(f"warned-{end.__name__}", STEPS, SECONDS)
    first = live.until(lambda: live.trains(job, steps=5))
    end(live, first)
    began = trainings(live, job)
    assert began[0].instance_id == first
    lost_nothing(live, job, began)


def test_a_machine_that_is_killed_costs_the_steps_since_the_last_checkpoint(live: KubernetesLive) -> None:
    env = {"TOY_STEPS": str(STEPS), "TOY_STEP_SECONDS": str(SECONDS), "TOY_EVERY": "5"}
    job = live.submit_toy("killed", STEPS, SECONDS, env=env)
    first = live.until(lambda: live.trains(job, steps=12))
    live.cloud.do("interrupt", instance=live.node_of(first), notice=False)
    began = trainings(live, job)
    assert began[0].instance_id == first != began[1].instance_id
    assert began[1].data["from_step"] >= 5 and began[1].data["from_step"] % 5 == 0


def test_two_jobs_share_a_node_and_go_on_together(live: KubernetesLive) -> None:
    jobs = [live.submit_toy(name, STEPS, SECONDS, resources=PART) for name in ("shared-a", "shared-b")]

    def pod_of_both() -> str | None:
        (first, second) = (live.trains(job, steps=5) for job in jobs)
        return first if first == second else None

    live.cloud.do("interrupt", instance=live.node_of(live.until(pod_of_both)))
    for job in jobs:
        lost_nothing(live, job, trainings(live, job))


def test_two_jobs_of_one_node_go_on_apart_where_no_node_has_room_for_both(live: KubernetesLive) -> None:
    """Given two jobs that fill a node and a third one on half of another, when the first two are evicted, then one goes
    on beside the third job and the other on a new node, each at its step."""
    lengths = {"parted-a": 3 * STEPS, "parted-b": 3 * STEPS, "parted-c": 5 * STEPS}
    a, b, c = [live.submit_toy(name, steps, SECONDS, resources=PART) for name, steps in lengths.items()]

    def pods_of_all() -> tuple[str, str] | None:
        pods = [live.trains(job, steps=5) for job in (a, b, c)]
        return (pods[0], pods[2]) if pods[0] and pods[2] and pods[0] == pods[1] != pods[2] else None

    full, half = live.until(pods_of_all)
    live.evict(full)
    (undisturbed,) = trainings(live, c)
    assert undisturbed.instance_id == half
    began = {job: trainings(live, job) for job in (a, b)}
    for job in began:
        lost_nothing(live, job, began[job])
    later = {attempts[1].instance_id for attempts in began.values()}
    assert half in later and len(later) == 2


def test_a_job_trains_on_while_the_api_server_is_away_for_a_minute(live: KubernetesLive) -> None:
    job = live.submit_toy("away", 4 * STEPS, SECONDS)
    pod = live.until(lambda: live.trains(job, steps=5))
    live.kubernetes.plane.stop_api()
    live.until(lambda: live.trains(job, steps=5 + int(60 / SECONDS)))
    live.kubernetes.plane.start_api()
    (only,) = trainings(live, job)
    assert only.instance_id == pod
    again = live.submit_toy("after-away", 10, SECONDS)
    trainings(live, again)


def test_a_scheduler_that_is_killed_in_the_middle_of_a_launch_launches_nothing_twice(live: KubernetesLive) -> None:
    live.until(lambda: not live.claims())  # the launch has to need a machine
    machines, pods = live.machines(), set(live.pods())
    job = live.submit_toy("launched-once", 10, SECONDS)

    def pending() -> list[str]:
        return [name for name, pod in live.pods().items() if name not in pods and not pod["spec"].get("nodeName")]

    live.until(pending)
    live.kill_scheduler()
    (name,) = pending()
    live.start_scheduler()
    (only,) = trainings(live, job)
    assert only.instance_id == name
    assert set(live.pods()) <= pods | {name}
    assert len(live.machines()) == len(machines) + 1
    launches = [document.value for document in live.store.launching.scan().values() if job in document.value.jobs]
    assert [[i.instance_id for i in launch.outcome.instances] for launch in launches if launch.outcome] == [[name]]


READER = """
from pathlib import Path
print("read", Path("/mnt/datasets/word").read_text())
try:
    Path("/mnt/datasets/word").write_text("rose")
except OSError as error:
    print("write", error.strerror)
"""


def test_a_job_reads_the_datasets_of_a_claim(live: KubernetesLive, tmp_path: Path) -> None:
    flowers, code = tmp_path / "flowers", tmp_path / "code"
    flowers.mkdir()
    code.mkdir()
    (flowers / "word").write_text("tulip")
    (code / "read.py").write_text(READER)
    live.create_claim("flowers", flowers)
    spec = JobSpec(name="reader", entrypoint=["read.py"], code=str(code))
    with live.declared("flowers", "flowers"):
        live.until(lambda: not live.claims())  # a pod of the other template may still be there
        job = live.store.submit(JobSubmission(job_id="reader", spec=spec, submitted_at=live.clock.now()), code).job_id
        trainings(live, job)
    output = b"".join(chunk.data for chunk in live.store.read_logs(job)).decode()
    assert "read tulip" in output and "write Read-only file system" in output
    assert (flowers / "word").read_text() == "tulip"


def test_a_job_with_an_image_is_interrupted_and_goes_on_on_another_node(live: KubernetesLive, tmp_path: Path) -> None:
    """Given pods that may make containers, when a notice ends the node of a job with an image, then the job goes on at
    its step in the same image on another node."""
    layout, code = tmp_path / "layout", tmp_path / "code"
    write_python_image(layout)
    code.mkdir()
    (code / "main.py").write_text((ROOT / "tests/agent/programs/container/main.py").read_text())
    dataset = live.store.datasets.put("own-image", layout)
    env = {"OWN": "of the job"}
    spec = JobSpec(name="imaged", entrypoint=["main.py"], code=str(code), image="own-image", env=env)
    submission = JobSubmission(job_id="imaged", spec=spec, submitted_at=live.clock.now(), datasets=[dataset.id])
    with live.declared("images", job_images=True):
        live.until(lambda: not live.claims())  # a pod of the other template may still be there
        job = live.store.submit(submission, code).job_id
        first = live.until(lambda: live.trains(job, steps=20))
        pod = live.pods()[first]["spec"]
        assert pod["securityContext"]["seccompProfile"]["type"] == "Localhost"
        notice(live, first)
        began = trainings(live, job)
    assert began[0].instance_id == first != began[1].instance_id
    outputs = live.store.outputs(job)
    (steps,) = [output for output in outputs.list() if output.path == "steps"]
    outputs.fetch(steps, tmp_path / "fetched")
    assert (tmp_path / "fetched" / "steps").read_text() == "20 40", "the step of the notice and the last one"
    lines = b"".join(chunk.data for chunk in live.store.read_logs(job)).decode().splitlines()
    before, after = [json.loads(line) for line in lines if line.startswith("{")]
    assert before == after and before["marker"] == "of the image" and before["capabilities"] == 0


def test_a_job_whose_spot_pools_are_dry_gets_on_demand_before_its_deadline(
    live: KubernetesLive, tmp_path: Path
) -> None:
    live.until(lambda: not live.claims())  # no node of another job may serve it
    live.cloud.do("drought", pool="*/*", **{"for": "1h"})
    spec: dict[str, Any] = {
        "name": "urgent", "entrypoint": ["toy_train.py"], "code": str(PROGRAMS / "toy"), "deadline": "16m",
        "expected_duration": "30s",
        "env": {"TOY_STEPS": "20", "TOY_STEP_SECONDS": str(SECONDS), "TOY_EVERY": "1000000"},
    }  # fmt: skip
    file = tmp_path / "urgent.yaml"
    file.write_text(yaml.safe_dump(spec))
    job = str(json.loads(everspot("submit", str(file), "--json"))["job_id"])
    (began,) = trainings(live, job)
    launches = {name: document.value for name, document in live.store.launches.scan().items()}
    assert began.instance_id is not None and launches[began.instance_id].market is Market.ON_DEMAND
    (finished,) = live.list_events(job, EventKind.FINISHED)
    submission = live.store.jobs.get(job)
    assert submission is not None and submission.value.deadline_at is not None
    assert finished.at < submission.value.deadline_at


def test_the_bill_is_what_the_market_charged_for_the_nodes(live: KubernetesLive) -> None:
    live.until(lambda: not live.claims())
    live.until(lambda: set(live.machines()) <= set(live.store.ends.scan()))
    report = json.loads(everspot("report", "--json"))
    audit = subprocess.run(
        [sys.executable, ROOT / "tools/audit_bill.py", live.folder / "market.jsonl", "--cloud", "aws", "--until",
         report["as_of"], "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    charged = json.loads(audit.stdout)["total_usd"]
    assert charged > 0 and f"{report['cost_usd']:.4f}" == f"{charged:.4f}"
    assert not any("no node is recorded" in note for note in report["notes"])
    nodes = {name for name, launch in live.store.launches.scan().items() if launch.value.role is Role.NODE}
    assert nodes == set(live.machines()) == {instance["instance_id"] for instance in report["instances"]}
    kinds = {row["kind"]: row["cost_usd"] for row in json.loads(everspot("cost", "audit", "--json"))["kinds"]}
    assert min(kinds["boot"], kinds["work"], kinds["drain"]) > 0
