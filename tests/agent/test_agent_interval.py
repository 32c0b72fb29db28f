"""A real job with a real agent and scheduler chooses its interval by what both tell it."""

from pathlib import Path

import pytest
from agent_helpers import Cluster, eventually
from everspot_core.jobs.records import EventKind, JobState

PROGRAM = Path(__file__).parent / "programs" / "torchtoy"
LONG = 600.0


@pytest.mark.nightly  # the first checkpoint comes after a minute
@pytest.mark.torch
@pytest.mark.timeout(1500)
def test_a_job_chooses_its_interval_by_its_checkpoint_and_the_rate_of_its_pool(cluster: Cluster) -> None:
    env = {"FIT_STEPS": "1000", "FIT_STEP_SECONDS": "0.1", "FIT_OUT": str(cluster.root / "weights.sha256")}
    resources = {"vcpus": 1, "memory_gib": 0.5}
    cluster.submit("job-1", PROGRAM, entrypoint=["fit.py"], env=env, resources=resources)
    cluster.start_agent("i-1", EVERSPOT_LAUNCHER="")
    cluster.start_scheduler()
    events = eventually("it is told", lambda: cluster.events("job-1", EventKind.CHECKPOINT_INTERVAL), LONG)
    assert events[0].data["cause"] == "shortest"
    assert "and an interruption comes about every 4.4 h" in events[0].data["reason"]
    assert "notice" not in events[0].data, "a state of some KB is durable within two minutes"
    assert cluster.wait_state("job-1", JobState.SUCCEEDED, seconds=LONG).epoch == 1
    assert len(cluster.events("job-1", EventKind.CHECKPOINT_INTERVAL)) == 1
