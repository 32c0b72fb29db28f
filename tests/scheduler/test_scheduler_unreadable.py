"""Documents that this scheduler cannot read, such as those of a newer release, stay unchanged and block nothing."""

import pytest
from everspot_core.jobs.records import Market
from scheduler_helpers import Cluster

LATER = b'{"job_id": "a", "state": "HIBERNATING", "epoch": 3, "changed_at": "2026-01-01T00:00:00Z"}'


def test_a_record_that_cannot_be_read_takes_no_instance_from_the_others(cluster: Cluster) -> None:
    cluster.submit("a")
    cluster.store.control.put("records/a.json", LATER)
    cluster.submit("b")
    cluster.agent("i-1")

    cluster.run(20)

    assert cluster.state("b") == "SUCCEEDED"
    entry = cluster.store.control.get("records/a.json")
    assert entry is not None and entry.value == LATER


def test_an_assignment_that_cannot_be_read_keeps_no_job_from_the_next_instance(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.agent("i-2")
    cluster.store.control.put("assignments/i-1.json", b'{"instance_id": "i-1", "order": "sing"}')
    cluster.submit("a")

    cluster.schedulers[0].tick()

    assignment = cluster.store.assignments.get("i-2")
    assert assignment is not None and assignment.value.job_id == "a"


@pytest.mark.parametrize("document", ["records/a.json", "jobs/a.json"])
def test_the_owner_of_a_job_that_cannot_be_read_is_left_alone(cluster: Cluster, document: str) -> None:
    cluster.length = 1000
    cluster.agent("i-1", Market.ON_DEMAND)
    cluster.submit("a")
    cluster.run(4)
    before = cluster.store.assignments.get("i-1")
    assert before is not None and before.value.job_id == "a"
    cluster.store.control.put(document, b'{"from": "the future"}')
    cluster.submit("b")

    for _ in range(5):
        cluster.schedulers[0].tick()

    after = cluster.store.assignments.get("i-1")
    assert after is not None and after.value == before.value
    assert cluster.state("b") == "PENDING"
