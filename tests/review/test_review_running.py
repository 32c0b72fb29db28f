"""Running jobs are read from the store that the stack's state names."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from everspot_core.capacity.market import Market
from everspot_core.jobs.records import InstanceRecord, InstanceState, JobRecord, JobState, Role
from everspot_review.engine import EngineError
from everspot_review.running import running_jobs
from everspot_store import Store

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def count_running(state: Any) -> Any:
    def answer(_: str) -> Any:
        if isinstance(state, Exception):
            raise state
        outputs = {} if state is None else {"controlUrl": state}
        return {"deployment": {"resources": [{"type": "pulumi:pulumi:Stack", "outputs": outputs}]}}

    return running_jobs(SimpleNamespace(state=answer), "dev")  # type: ignore[arg-type]


def test_busy_jobs_are_counted_by_the_market_of_their_instances(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    store = Store.open(url, url)
    for name, market in (("i-1", Market.SPOT), ("i-2", Market.SPOT), ("i-3", Market.ON_DEMAND)):
        record = InstanceRecord(
            instance_id=name, cluster="dev", instance_type="c6i.large", zone="eu-west-1a", market=market,
            vcpus=2, memory_gib=4,
            state=InstanceState.BUSY, role=Role.AGENT, booted_at=NOW, updated_at=NOW,
        )  # fmt: skip
        store.instances.create(name, record)
    states = [JobState.RUNNING, JobState.ASSIGNED, JobState.RUNNING, JobState.PENDING]
    for number, state in enumerate(states, 1):
        owner = f"i-{number}" if state is not JobState.PENDING else None
        store.records.create(
            f"job-{number}", JobRecord(job_id=f"job-{number}", state=state, owner=owner, changed_at=NOW)
        )
    busy_jobs = count_running(url)
    assert (busy_jobs.on(Market.SPOT), busy_jobs.on(Market.ON_DEMAND), busy_jobs.on(None)) == (2, 1, 3)
    store.records.create("job-9", JobRecord(job_id="job-9", state=JobState.RUNNING, owner="i-unknown", changed_at=NOW))
    assert count_running(url) is None


@pytest.mark.parametrize("state", [None, {"secret": "x"}, "mars://nowhere", EngineError("no such stack")])
def test_a_store_that_cannot_be_asked_is_no_store_without_jobs(state: Any) -> None:
    assert count_running(state) is None
