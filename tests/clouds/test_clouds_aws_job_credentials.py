"""The session policy of a job on AWS: its own keys, and nothing of others."""

import json

import pytest
from everspot_clouds.aws.job_credentials import LONGEST_POLICY, session_policy
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.access import job_access
from everspot_core.jobs.job import PrecedingJob
from everspot_local.aws.iam.policy_language import Call, PolicyDecision, decide
from job_documents import head, submission

CLUSTER = Manifest(
    cluster="fleet", cloud="aws", control_url="s3://fleet-control?region=eu-west-1",
    data_url="s3://fleet-data/team-a?region=eu-west-1",
)  # fmt: skip


def allows(policy: str, action: str, resource: str, prefix: str | None = None) -> bool:
    context = {} if prefix is None else {"s3:prefix": (prefix,)}
    return decide([json.loads(policy)], Call(action, f"arn:aws:s3:::{resource}", context)) is PolicyDecision.ALLOW


def test_an_attempt_writes_its_own_keys() -> None:
    policy = session_policy(job_access(submission(), 2), CLUSTER)
    for key in (
        "fleet-control/heads/mine.json",
        "fleet-control/events/mine/000002-trainer-i-1-000001.json",
        "fleet-data/team-a/jobs/mine/checkpoints/000002/000000000100/model",
        "fleet-data/team-a/jobs/mine/metrics/000002/000001.jsonl",
    ):
        assert allows(policy, "s3:PutObject", key) and allows(policy, "s3:GetObject", key)
    for key in (
        "fleet-control/heads/mine-too.json",
        "fleet-control/events/mine/000002-i-1-000001.json",
        "fleet-control/events/mine/000001-trainer-i-1-000001.json",
        "fleet-control/records/mine.json",
        "fleet-data/team-a/jobs/mine/checkpoints/000001/000000000100/model",
        "fleet-data/team-a/jobs/mine/outputs/000002/model",
        "fleet-data/team-a/jobs/mine-too/checkpoints/000002/000000000100/model",
        "fleet-data/jobs/mine/checkpoints/000002/x",
    ):
        assert not allows(policy, "s3:PutObject", key)
    assert allows(policy, "s3:DeleteObject", "fleet-data/team-a/jobs/mine/checkpoints/000001/000000000100/model")
    assert not allows(policy, "s3:DeleteObject", "fleet-control/heads/mine.json")


def test_an_attempt_reads_what_its_submission_names() -> None:
    named = {"datasets": ["corpus@5f1c"], "after": [PrecedingJob(name="first", job_id="other")]}
    policy = session_policy(job_access(submission(**named), 1), CLUSTER)
    data = "fleet-data/team-a"
    assert allows(policy, "s3:GetObject", f"{data}/datasets/corpus/5f1c.json")
    assert allows(policy, "s3:GetObject", f"{data}/datasets/_files/0123")
    assert allows(policy, "s3:GetObject", f"{data}/jobs/other/outputs/000001/model")
    assert allows(policy, "s3:ListBucket", "fleet-data", "team-a/jobs/other/outputs/")
    assert not allows(policy, "s3:GetObject", f"{data}/jobs/other/checkpoints/000001/x")
    assert not allows(policy, "s3:GetObject", f"{data}/datasets/private/1.json")
    assert not allows(policy, "s3:GetObject", f"{data}/wheels/0123/a.whl")
    without = session_policy(job_access(submission(), 1), CLUSTER)
    assert not allows(without, "s3:GetObject", f"{data}/datasets/_files/0123")


@pytest.mark.parametrize("prefix", [None, "", "team-a/", "team-a/jobs/", "team-a/datasets/_files/", "team-a/code/"])
def test_no_listing_shows_the_keys_of_others(prefix: str | None) -> None:
    named = {"datasets": ["corpus@5f1c"], "after": [PrecedingJob(name="first", job_id="other")]}
    policy = session_policy(job_access(submission(**named), 1), CLUSTER)
    assert not allows(policy, "s3:ListBucket", "fleet-data", prefix)
    assert not allows(policy, "s3:ListBucket", "fleet-control", prefix)


def test_a_retry_reads_the_checkpoints_of_the_jobs_before() -> None:
    parts = head("jobs/first/checkpoints/000001/000000000001/m", "jobs/mine/checkpoints/000001/000000000002/m")
    access = job_access(submission(retry_of="second"), 1, parts, ["second", "first"])
    policy = session_policy(access, CLUSTER)
    assert allows(policy, "s3:GetObject", "fleet-data/team-a/jobs/first/checkpoints/000001/000000000001/m")
    assert not allows(policy, "s3:GetObject", "fleet-data/team-a/jobs/second/checkpoints/000001/x")
    assert not allows(policy, "s3:PutObject", "fleet-data/team-a/jobs/first/checkpoints/000001/x")


def test_what_a_job_writes_into_its_head_grants_nothing() -> None:
    forged = head("jobs/victim/checkpoints/000001/000000000001/m", "code/0123.tar.gz", "odd")
    policy = session_policy(job_access(submission(), 2, forged), CLUSTER)
    assert not allows(policy, "s3:GetObject", "fleet-data/team-a/jobs/victim/checkpoints/000001/000000000001/m")
    assert not allows(policy, "s3:GetObject", "fleet-data/team-a/code/0123.tar.gz")


def test_other_buckets_are_left_to_the_role() -> None:
    assert not allows(session_policy(job_access(submission(), 1), CLUSTER), "s3:GetObject", "corpora/words")
    shared = CLUSTER.model_copy(update={"further_buckets": True})
    policy = session_policy(job_access(submission(), 1), shared)
    assert allows(policy, "s3:GetObject", "corpora/words") and allows(policy, "s3:ListBucket", "corpora")
    assert not allows(policy, "s3:PutObject", "corpora/words")
    assert not allows(policy, "s3:GetObject", "fleet-data/team-a/jobs/victim/outputs/000001/model")


LONG = Manifest(cluster="fleet", cloud="aws", control_url=f"s3://{'c' * 63}", data_url=f"s3://{'d' * 63}")
"""Buckets with the longest names that S3 takes."""


def test_a_job_fits_whatever_the_buckets_and_datasets_are_called() -> None:
    policy = session_policy(job_access(submission("j" * 60), 1), LONG)
    assert len(policy) <= LONGEST_POLICY
    many = {"datasets": [f"dataset-{number:02}@{'5f1c' * 16}" for number in range(20)]}
    policy = session_policy(job_access(submission("j" * 40, **many), 1), LONG)
    assert allows(policy, "s3:GetObject", f"{'d' * 63}/datasets/dataset-07/5f1c.json")
    assert not allows(policy, "s3:ListBucket", "d" * 63, "datasets/")


def test_outputs_of_too_many_jobs_are_refused_in_words() -> None:
    after = [PrecedingJob(name=f"part-{number}", job_id=f"part-{number}-0123456789") for number in range(20)]
    with pytest.raises(ValueError, match="Name fewer jobs in `after`"):
        session_policy(job_access(submission(after=after), 1), CLUSTER)
    assert session_policy(job_access(submission(after=after[:6]), 1), CLUSTER)
