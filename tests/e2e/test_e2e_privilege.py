"""Least privilege: what the roles call is allowed; what they are allowed is called, or listed with its source."""

import fnmatch
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_helpers import BUCKETS, CLUSTER, JOB_ROLE, PLAIN, PROGRAMS, LiveCluster, everspot
from everspot.aws import policies
from everspot_core.jobs.records import EventKind, JobState

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800)]

# Granted though this run does not come by them: (action, resource), and who says that they are needed.
NEEDED_ON_AWS = {
    (
        "s3:AbortMultipartUpload",
        "jobs/*",
    ): "Amazon S3 User Guide, Multipart upload API and permissions: a failed upload of "
    "a large part is cleaned up; the parts of this run's checkpoints are too small to be uploaded in pieces",
    ("s3:GetObject", "datasets/*"): "the trainer fetches datasets that lie in the store; this run's are synthetic",
    (
        "s3:GetObject",
        "wheels/*",
    ): "docs/reference/job-file.md, requirements: packages that a job brings along; no job of this run brings any",
    **{
        (
            "s3:DeleteObject",
            f"{prefix}/*",
        ): "docs/internals/store.md, Archive: an hour after a job's or an instance's end, for "
        "which this run is too short"
        for prefix in ("jobs", "cancels", "events", "records", "assignments", "instances")
    },
    ("s3:PutObject", "archive/*"): "docs/internals/store.md, Archive: as above",
    **{
        (
            f"s3:{verb}Object",
            "launching/*",
        ): "docs/internals/scheduler.md, Elastic capacity: this run's capacity stands; test_e2e_elastic.py launches"
        for verb in ("Put", "Delete")
    },
    **{
        (
            f"ec2:{call_name}",
            "*",
        ): "docs/internals/scheduler.md, Elastic capacity: the chance of spot, asked for where it may launch"
        for call_name in ("GetSpotPlacementScores", "DescribeAvailabilityZones")
    },
    (
        "s3:PutObject",
        "control/jobs/*",
    ): "docs/guide/jobs.md, every: the next run of a series; none here",
    **dict.fromkeys(
        (("s3:GetObject", "events/*"), ("s3:ListBucket", BUCKETS[0])),
        "docs/internals/store.md, the five outcomes: an event whose write got no answer is read back, and where it is "
        "missing a listing says so",
    ),
    **dict.fromkeys(
        (("s3:GetObject", "data/jobs/*"), ("s3:ListBucket", BUCKETS[1])),
        "docs/reference/agent.md: the agent puts back the folder of a program without the library; this run has none",
    ),
    ("s3:PutObject", "faults/*"): "the record of an instance that was of no use, of which this run has none",
    ("kms:GenerateDataKey", "key"): "Amazon S3 User Guide, Using SSE-KMS: writing under a customer's key",
    ("kms:Decrypt", "key"): "Amazon S3 User Guide, Using SSE-KMS: reading, and finishing a multipart upload",
} | {
    (action, "*"): "AWS Systems Manager User Guide, minimal Session Manager permissions; off unless asked for"
    for action in (
        "ssm:UpdateInstanceInformation",
        *(
            f"ssmmessages:{c}"
            for c in ("CreateControlChannel", "CreateDataChannel", "OpenControlChannel", "OpenDataChannel")
        ),
    )
}


def granted(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for statement in document["Statement"]:
        assert statement["Effect"] == "Allow"
        for action in statement["Action"]:
            for resource in statement["Resource"]:
                yield action, resource


def covers(grant: tuple[str, str], call: tuple[str, str]) -> bool:
    return grant[0] == call[0] and (call[1] == "*" or fnmatch.fnmatchcase(call[1], grant[1]))


def submit_code(folder: Path, steps: int) -> str:
    """A job with its user's own code, submitted by the command."""
    env = {"FIT_STEPS": str(steps), "FIT_STEP_SECONDS": "0", "FIT_OUT": str(folder / "digest")}
    job = {"name": "own", "code": str(PROGRAMS / "torchtoy"), "entrypoint": ["fit.py"], "env": env}
    (folder / "job.yaml").write_text(json.dumps(job))
    return str(json.loads(everspot("submit", str(folder / "job.yaml"), "--json"))["job_id"])


def restored(live: LiveCluster, job: str) -> int:
    """How often a trainer has gone on from a checkpoint."""
    return sum(bool(event.data["restored"]) for event in live.list_events(job, EventKind.TRAINING))


def is_missing_document(call: dict[str, Any], calls: list[dict[str, Any]]) -> bool:
    """Whether a job looked for its own document, which was missing, and went on with a listing of its folder.

    S3 answers 403 for a missing key to who may not list the whole bucket. The document is read back where a write got
    no answer, as on a slow machine (`everspot_store.cloud`)."""
    read, *_ = call["checked"]
    later = calls[calls.index(call) + 1 :]
    return (
        call["action"] == "GetObject"
        and "assumed-role/e2e-job/" in call["principal"]
        and fnmatch.fnmatchcase(read["resource"], f"arn:aws:s3:::{BUCKETS[0]}/events/*")
        and any(c["allowed"] and c["principal"] == call["principal"] and c["action"].startswith("List") for c in later)
    )


@pytest.fixture(scope="module")
def travelled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, str]]]:
    """What each role called, in a cluster that ran jobs, was interrupted, drilled and drained."""
    own_folder = tmp_path_factory.mktemp("own")
    with LiveCluster(tmp_path_factory.mktemp("e2e"), agent_env=PLAIN) as live:
        own = submit_code(own_folder, steps=50)
        # The one above trains with torch. This one is begun three times, and torch takes as long to import as the rest.
        job = live.submit_toy("walked", steps=1_000_000, seconds=1, checkpoint={"steps": 100})
        first = live.until(lambda: live.trains(job, steps=150))
        # While its own instance is the only free one, a drilled job goes back there.
        assert live.until(lambda: live.ended(own)) is JobState.SUCCEEDED
        everspot("interrupt", job)
        live.until(lambda: live.list_events(job, EventKind.INTERRUPTED) or None)
        live.until(lambda: restored(live, job) == 1)
        second = live.until(lambda: live.trains(job))
        assert second != first
        live.cloud.do("interrupt", instance=second)
        live.until(lambda: restored(live, job) == 2)
        assert len((own_folder / "digest").read_text()) == 64
        everspot("drain", "--wait")
        drilled, *_, drained = live.list_events(job, EventKind.INTERRUPTED)
        assert all(event.data["durable_step"] == event.data["step"] for event in (drilled, drained))
        calls = live.calls()
    refused = [c for c in calls if not c["allowed"] and not is_missing_document(c, calls)]
    assert refused == []
    by_role: dict[str, list[tuple[str, str]]] = {"agent": [], "scheduler": [], "job": []}
    for call in calls:
        for role, own in by_role.items():
            if f"assumed-role/e2e-{role}/" in call["principal"]:
                own += [(checked["action"], checked["resource"]) for checked in call["checked"]]
    return by_role


def documents() -> dict[str, dict[str, Any]]:
    control, data = (f"arn:aws:s3:::{bucket}" for bucket in BUCKETS)
    queue = "arn:aws:sqs:eu-west-1:123456789012:e2e-interruptions"
    agent = policies.agent_policy(control_arn=control, data_arn=data, key_arn="key", session_manager=True)
    return {
        "agent": policies.document([*agent["Statement"], *policies.assume_policy(JOB_ROLE)["Statement"]]),
        "job": policies.job_policy(control_arn=control, data_arn=data, key_arn="key"),
        "scheduler": policies.scheduler_policy(
            cluster=CLUSTER, control_arn=control, queue_arn=queue, key_arn="key", session_manager=True
        ),
    }


@pytest.mark.parametrize("role", ["agent", "scheduler", "job"])
def test_every_call_is_allowed(travelled: dict[str, list[tuple[str, str]]], role: str) -> None:
    grants = list(granted(documents()[role]))
    assert len(travelled[role]) > (20 if role == "job" else 50)
    assert {call for call in travelled[role] if not any(covers(grant, call) for grant in grants)} == set()


@pytest.mark.parametrize("role", ["agent", "scheduler", "job"])
def test_nothing_is_allowed_that_is_neither_called_nor_listed(
    travelled: dict[str, list[tuple[str, str]]], role: str
) -> None:
    def listed(grant: tuple[str, str]) -> bool:
        return any(grant[0] == action and grant[1].endswith(place) for action, place in NEEDED_ON_AWS)

    unused = {
        grant
        for grant in granted(documents()[role])
        if not listed(grant) and not any(covers(grant, call) for call in travelled[role])
    }
    assert unused == set()


def test_a_grant_too_many_would_be_found(travelled: dict[str, list[tuple[str, str]]]) -> None:
    assert not any(covers(("ec2:TerminateInstances", "*"), call) for call in travelled["scheduler"])
    assert not any(
        covers(("s3:PutObject", f"arn:aws:s3:::{BUCKETS[0]}/assignments/*"), call) for call in travelled["agent"]
    )
