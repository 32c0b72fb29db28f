"""An interruption notice arrives through the metadata service and through the cloud's message queue. Either one alone
suffices for a resume on another instance without redone steps."""

from pathlib import Path
from typing import Any

import pytest
from e2e_helpers import PLAIN, LiveCluster
from everspot_core.jobs.records import EventKind, JobState

pytestmark = pytest.mark.timeout(1800)


def interrupted_once(live: LiveCluster) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Run a job, have its instance taken with notice, and let it end: what interruption and second training say."""
    job = live.submit_toy("noticed", steps=300, seconds=1)  # longer than the two minutes of a notice
    first = live.until(lambda: live.trains(job, steps=5))
    live.cloud.do("interrupt", instance=first)
    assert live.until(lambda: live.ended(job)) is JobState.SUCCEEDED
    owners = [e.instance_id for e in live.list_events(job, EventKind.STARTED)]
    assert owners[0] == first
    assert len(owners) == 2 and owners[1] != first
    (notice,) = live.list_events(job, EventKind.STOP_DEMANDED)
    (interruption,) = live.list_events(job, EventKind.INTERRUPTED)
    training = live.list_events(job, EventKind.TRAINING)
    assert training[1].data["from_step"] == interruption.data["step"] == interruption.data["durable_step"] >= 5
    return interruption.data, training[1].data, str(notice.data["source"])


def test_the_queue_alone_is_enough(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, agent_env={"EVERSPOT_NOTICE_SOURCES": "queue"} | PLAIN) as live:
        interruption, _, source = interrupted_once(live)
    assert source == "queue"
    assert 0 < float(interruption["notice_to_durable_seconds"]) < 120


@pytest.mark.nightly  # tests/agent/test_agent_process.py has a notice of the metadata service alone
def test_the_metadata_service_alone_is_enough(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, agent_env={"EVERSPOT_NOTICE_SOURCES": "metadata"} | PLAIN, events=False) as live:
        interruption, _, source = interrupted_once(live)
    assert source == "metadata"
    assert 0 < float(interruption["notice_to_durable_seconds"]) < 120
