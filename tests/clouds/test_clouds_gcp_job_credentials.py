"""The Credential Access Boundary of a job on Google Cloud: its own keys, and nothing of others."""

from typing import Any

import pytest
from everspot.gcp import policies
from everspot_clouds.gcp.job_credentials import MOST_READ_BUCKETS, MOST_RULES, access_boundary
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.access import JobAccess, job_access
from everspot_core.jobs.job import PrecedingJob
from everspot_local.gcp.iam.boundaries import LIST_PREFIX, admits, read_boundary
from everspot_local.gcp.iam.names import attributes
from everspot_local.gcp.iam.predefined import PREDEFINED
from job_documents import head, submission

ROLE = "projects/everspot-local/roles/everspot_fleet_jobs_12345678"
CLUSTER = Manifest(
    cluster="fleet", cloud="gcp", control_url="gs://fleet-control", data_url="gs://fleet-data/team-a", job_role=ROLE
)
CREATE, GET, DELETE, LIST = (f"storage.objects.{verb}" for verb in ("create", "get", "delete", "list"))


class Limits:
    """A boundary as the local Google Cloud evaluates it. Keys are BUCKET/KEY."""

    def __init__(self, access: JobAccess, manifest: Manifest = CLUSTER) -> None:
        self.options: dict[str, Any] = access_boundary(access, manifest)
        roles = {**PREDEFINED, ROLE: frozenset(policies.JOB_DELETES)}
        self._boundary = read_boundary(self.options, roles.get)

    def allow(self, permission: str, place: str, prefix: str = "") -> bool:
        """Return whether a permission is left on an object, or on a bucket for a listing below a prefix."""
        bucket, _, key = place.partition("/")
        resource = f"projects/_/buckets/{bucket}" + (f"/objects/{key}" if key else "")
        values = {**attributes(resource, "everspot-local", "1"), LIST_PREFIX: prefix}
        return admits(self._boundary, permission, resource, values, lambda _: True)


def test_an_attempt_writes_its_own_keys() -> None:
    limits = Limits(job_access(submission(), 2))
    for key in (
        "fleet-control/heads/mine.json",
        "fleet-control/events/mine/000002-trainer-i-1-000001.json",
        "fleet-data/team-a/jobs/mine/checkpoints/000002/000000000100/model",
        "fleet-data/team-a/jobs/mine/metrics/000002/000001.jsonl",
    ):
        assert all(limits.allow(permission, key) for permission in (CREATE, GET, DELETE)), key
    assert limits.allow("storage.multipartUploads.create", "fleet-data/team-a/jobs/mine/checkpoints/000002/1/model")
    for key in (
        "fleet-control/heads/mine-too.json",
        "fleet-control/heads/mine.json2",
        "fleet-control/events/mine/000002-i-1-000001.json",
        "fleet-control/events/mine/000001-trainer-i-1-000001.json",
        "fleet-control/records/mine.json",
        "fleet-data/team-a/jobs/mine/checkpoints/000001/000000000100/model",
        "fleet-data/team-a/jobs/mine/outputs/000002/model",
        "fleet-data/team-a/jobs/mine-too/checkpoints/000002/000000000100/model",
        "fleet-data/jobs/mine/checkpoints/000002/x",
    ):
        assert not limits.allow(CREATE, key), key
    earlier = "fleet-data/team-a/jobs/mine/checkpoints/000001/000000000100/model"
    assert limits.allow(DELETE, earlier) and not limits.allow("storage.objects.update", earlier)
    assert not limits.allow(DELETE, "fleet-data/team-a/jobs/mine/logs/000002/000000.log")


def test_an_attempt_reads_what_its_submission_names() -> None:
    fields = {"datasets": ["corpus@5f1c"], "after": [PrecedingJob(name="first", job_id="other")]}
    limits, data = Limits(job_access(submission(**fields), 1)), "fleet-data/team-a"
    assert limits.allow(GET, f"{data}/datasets/corpus/5f1c.json")
    assert limits.allow(GET, f"{data}/datasets/_files/0123")
    assert limits.allow(GET, f"{data}/jobs/other/outputs/000001/model")
    assert limits.allow(LIST, "fleet-data", "team-a/jobs/other/outputs/")
    assert not limits.allow(GET, f"{data}/jobs/other/checkpoints/000001/x")
    assert not limits.allow(GET, f"{data}/datasets/private/1.json")
    assert not limits.allow(GET, f"{data}/wheels/0123/a.whl")
    assert not Limits(job_access(submission(), 1)).allow(GET, f"{data}/datasets/_files/0123")


@pytest.mark.parametrize("prefix", ["", "team-a/", "team-a/jobs/", "team-a/datasets/_files/", "team-a/code/"])
def test_no_listing_shows_the_keys_of_others(prefix: str) -> None:
    fields = {"datasets": ["corpus@5f1c"], "after": [PrecedingJob(name="first", job_id="other")]}
    limits = Limits(job_access(submission(**fields), 1))
    assert not limits.allow(LIST, "fleet-data", prefix)
    assert not limits.allow(LIST, "fleet-control", prefix)


def test_a_retry_reads_the_checkpoints_of_the_jobs_before() -> None:
    parts = head("jobs/first/checkpoints/000001/000000000001/m", "jobs/mine/checkpoints/000001/000000000002/m")
    limits = Limits(job_access(submission(retry_of="second"), 1, parts, ["second", "first"]))
    assert limits.allow(GET, "fleet-data/team-a/jobs/first/checkpoints/000001/000000000001/m")
    assert not limits.allow(GET, "fleet-data/team-a/jobs/second/checkpoints/000001/x")
    assert not limits.allow(CREATE, "fleet-data/team-a/jobs/first/checkpoints/000001/x")


def test_what_a_job_writes_into_its_head_grants_nothing() -> None:
    limits = Limits(job_access(submission(), 2, head("jobs/victim/checkpoints/000001/000000000001/m", "code/0.tar.gz")))
    assert not limits.allow(GET, "fleet-data/team-a/jobs/victim/checkpoints/000001/000000000001/m")
    assert not limits.allow(GET, "fleet-data/team-a/code/0.tar.gz")


def test_further_buckets_are_read_and_no_other() -> None:
    shared = CLUSTER.model_copy(update={"read_buckets": ["corpora"]})
    limits = Limits(job_access(submission(), 1), shared)
    assert limits.allow(GET, "corpora/words") and limits.allow(LIST, "corpora")
    assert not limits.allow(CREATE, "corpora/words") and not limits.allow(GET, "others/words")
    assert not Limits(job_access(submission(), 1)).allow(GET, "corpora/words")


LONG = Manifest(
    cluster="fleet", cloud="gcp", control_url=f"gs://{'c' * 63}", data_url=f"gs://{'d' * 63}", job_role=ROLE,
    read_buckets=[f"{number}{'r' * 62}" for number in range(MOST_READ_BUCKETS)],
)  # fmt: skip
"""Buckets with the longest names that Cloud Storage takes, and as many further ones as a cluster may have."""


def test_a_job_fits_whatever_the_buckets_and_datasets_are_called() -> None:
    assert len(Limits(job_access(submission("j" * 60), 1), LONG).options["accessBoundary"]["accessBoundaryRules"]) <= 9
    many = {"datasets": [f"dataset-{number:02}@{'5f1c' * 16}" for number in range(40)]}
    limits = Limits(job_access(submission("j" * 40, **many), 1), LONG)
    assert limits.allow(GET, f"{'d' * 63}/datasets/dataset-07/5f1c.json")
    assert not limits.allow(LIST, "d" * 63, "datasets/")


def test_outputs_of_too_many_jobs_are_refused_in_words() -> None:
    after = [PrecedingJob(name=f"part-{number}", job_id=f"part-{number}-0123456789") for number in range(50)]
    with pytest.raises(ValueError, match="Name fewer jobs in `after`"):
        access_boundary(job_access(submission(after=after), 1), CLUSTER)
    boundary = access_boundary(job_access(submission(after=after[:20]), 1), CLUSTER)
    assert len(boundary["accessBoundary"]["accessBoundaryRules"]) <= MOST_RULES


def test_a_name_that_could_end_a_condition_is_refused() -> None:
    access = job_access(submission(datasets=["corpus@5f1c"]), 1)
    with pytest.raises(ValueError, match="cannot be named"):
        access_boundary(access, CLUSTER.model_copy(update={"data_url": "gs://fleet-data/a') || ('b"}))
