"""Jobs on the local Kubernetes with the real Karpenter: whatever ends a job's pod, the job goes on in the next one, and
a warning is enough to lose no step."""

from collections.abc import Callable, Iterator

import pytest
from e2e_kubernetes import LACKS_PROGRAMS, MISSING, NAMESPACE, KubernetesLive
from everspot_core.jobs.records import Event, EventKind, JobState

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(LACKS_PROGRAMS, reason=MISSING),
]
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
