"""A restarted agent takes up its job under the same epoch: processes of its earlier run can no longer write."""

from datetime import timedelta
from pathlib import Path

import pytest
from everspot_core.jobs import lease as transitions
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import Progress
from everspot_store import Checkpoints, Fenced, Lease, ManualClock, Store

CLOCK = ManualClock()
TTL = timedelta(seconds=60)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    for name in ("control", "data"):
        (tmp_path / name).mkdir()
    store = Store.open(f"file://{tmp_path}/control", f"file://{tmp_path}/data", clock=CLOCK)
    spec = JobSpec(name="toy", recipe="image-classification")
    store.submit(JobSubmission(job_id="job-1", spec=spec, submitted_at=CLOCK.now()))
    store.records.create("job-1", transitions.assign(None, "job-1", "i-1", CLOCK.now()))
    return store


def take(store: Store) -> tuple[Lease, Checkpoints]:
    lease = store.acquire("job-1", 1, "i-1", ttl=TTL, adopt=True)
    assert lease is not None
    return lease, store.checkpoints("job-1", 1, incarnation=lease.incarnation)


def test_the_first_life_publishes_nothing_once_the_second_has_begun(store: Store, tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_text("state")
    (_, first), (_, second) = take(store), take(store)
    first.publish(1, {"a": part})

    second.restore(tmp_path / "restored")
    with pytest.raises(Fenced, match="a later agent of the same instance"):
        first.publish(2, {"a": part})
    with pytest.raises(Fenced):
        first.retire()
    second.publish(3, {"a": part})

    head = second.head()
    assert head is not None
    assert [checkpoint.step for checkpoint in head.checkpoints] == [3, 1]


def test_the_first_life_cannot_renew_nor_release_what_the_second_holds(store: Store) -> None:
    (first, _), (second, _) = take(store), take(store)
    assert (first.incarnation, second.incarnation) == (1, 2)

    assert not first.renew(Progress(step=9))
    assert second.renew(Progress(step=5))
    record = store.records.get("job-1")
    assert record is not None
    assert (record.value.progress.step, record.value.incarnation) == (5, 2)
