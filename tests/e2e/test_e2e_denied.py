"""A job whose credentials are refused waits for the permission, says which one, and ends before it costs more."""

import json
from pathlib import Path
from typing import Any

import pytest
from e2e_helpers import BUCKETS, JOB_ROLE, PLAIN, LiveCluster, everspot, everspot_output
from everspot.aws import policies
from everspot_core.jobs.lease import DENIED_RUNS
from everspot_core.jobs.records import EventKind, JobRecord, JobState, Reason

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800)]

CONTROL, DATA = (f"arn:aws:s3:::{bucket}" for bucket in BUCKETS)


class Quick(LiveCluster):
    """A cluster in which two hours of back-off last a minute."""

    scale = 120.0


def denied(live: LiveCluster, job: str, times: int = 1) -> JobRecord | None:
    """Return the record of a job that was denied so often and waits for its next attempt."""
    record = live.store.records.get(job)
    if record is None or record.value.last_reason is not Reason.DENIED or len(record.value.unstarted) < times:
        return None
    return record.value


def queue_check() -> str:
    """Return what doctor says about the queue."""
    (check,) = [c for c in json.loads(everspot_output("doctor", "--json"))["checks"] if c["name"] == "queue"]
    return str(check["detail"])


def test_a_job_that_is_denied_waits_says_so_and_ends_before_it_costs_more(tmp_path: Path) -> None:
    with Quick(tmp_path, agent_env=PLAIN) as live:
        # The role is revoked: no program begins, and the job goes on when the role is back.
        live.client("iam").delete_role_policy(RoleName="e2e-agent", PolicyName="become")
        revoked = live.submit_toy("revoked", steps=3, seconds=1)
        record = live.until(lambda: denied(live, revoked, times=2))
        assert record.state is not JobState.FAILED
        row: dict[str, Any] = json.loads(everspot("job", revoked, "--json"))
        assert (row["last_reason"], "credentials" in row["detail"]) == ("denied", True)
        live.until(lambda: "a permission is missing" in everspot_output("job", revoked) or None)
        live.until(lambda: f"{revoked} is denied what it needs" in queue_check() or None)
        live.allow("e2e-agent", "become", policies.assume_policy(JOB_ROLE))
        assert live.until(lambda: live.ended(revoked)) is JobState.SUCCEEDED

        # The role may not write checkpoints: each attempt trains, and is denied at its first one.
        own = policies.job_policy(control_arn=CONTROL, data_arn=DATA)
        forbidden = {"Effect": "Deny", "Action": ["s3:PutObject"], "Resource": [f"{DATA}/jobs/*"]}
        live.allow("e2e-job", "all", own | {"Statement": [*own["Statement"], forbidden]})
        job = live.submit_toy("refused", steps=40, seconds=1, checkpoint={"steps": 2})
        assert live.until(lambda: live.ended(job)) is JobState.FAILED
        stored = live.store.records.get(job)
        assert stored is not None
        record = stored.value
        assert record.last_reason is Reason.DENIED
        # The first one came further than the job had come before.
        assert len(live.list_events(job, EventKind.TRAINING)) <= DENIED_RUNS + 1
        assert record.epoch <= DENIED_RUNS + 1
        assert "grant the permission" in record.detail and f"{BUCKETS[1]}/jobs/refused" in record.detail
        (event,) = live.list_events(job, EventKind.FAILED)
        assert event.data["reason"] == "denied" and "grant the permission" in str(event.data["message"])
        assert f"{job} was denied what it needs" in queue_check()
        assert "everspot retry" in everspot_output("job", job)
