"""A job's session at the local STS: how long it is served, and what happens while STS refuses."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_clouds.aws.job_credentials import PATH, AwsJobCredentials
from everspot_clouds.base import CloudError, Trouble
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.access import job_access
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_local.options import Options
from everspot_store import ManualClock
from localcloud_worker import enforcing

ROLE = "arn:aws:iam::123456789012:role/jobs"
AGENTS = "arn:aws:iam::123456789012:role/agents"
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    return enforcing(Path(tmp_path_factory.mktemp("jobs")))


def trust(principal: dict[str, str]) -> str:
    statement = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@pytest.fixture
def agent(kit: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An agent's role, whose session is in the environment, and a role for jobs that trusts it."""
    iam = kit.client("iam")
    iam.create_role(RoleName="agents", AssumeRolePolicyDocument=trust({"Service": "ec2.amazonaws.com"}))
    may = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": ROLE}]}
    iam.put_role_policy(RoleName="agents", PolicyName="all", PolicyDocument=json.dumps(may))
    iam.create_role(RoleName="jobs", AssumeRolePolicyDocument=trust({"AWS": AGENTS}))
    kit.wait_for_role("agents")
    kit.wait_for_role("jobs")
    session = kit.client("sts").assume_role(RoleArn=AGENTS, RoleSessionName="i-1")["Credentials"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", kit.cloud.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", session["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", session["SecretAccessKey"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", session["SessionToken"])
    return kit


def credentials(clock: ManualClock) -> AwsJobCredentials:
    spec = JobSpec.model_validate({"name": "mine", "entrypoint": ["fit.py"], "code": "."})
    access = job_access(JobSubmission(job_id="mine", spec=spec, submitted_at=NOW), 1)
    manifest = Manifest(
        cluster="fleet", cloud="aws", region="us-east-1", control_url="s3://control", data_url="s3://data"
    )
    return AwsJobCredentials(ROLE, manifest, clock, access)


def key_id(served: AwsJobCredentials) -> str:
    answer = served.answer(PATH)
    assert answer is not None
    return str(json.loads(answer.body)["AccessKeyId"])


def refuse(kit: Any) -> None:
    kit.client("iam").update_assume_role_policy(RoleName="jobs", PolicyDocument=trust({"Service": "ec2.amazonaws.com"}))


def test_a_session_is_served_for_half_an_hour_and_then_replaced(agent: Any) -> None:
    clock = ManualClock()
    served = credentials(clock)
    first = key_id(served)
    clock.advance(timedelta(minutes=29))
    assert key_id(served) == first
    clock.advance(timedelta(minutes=2))
    assert key_id(served) != first
    assert served.answer("/other") is None


def test_a_session_is_served_to_its_end_while_sts_refuses_another(agent: Any) -> None:
    clock = ManualClock()
    served = credentials(clock)
    first = key_id(served)
    refuse(agent)
    clock.advance(timedelta(minutes=45))
    assert key_id(served) == first
    clock.advance(timedelta(minutes=16))
    with pytest.raises(CloudError, match="cannot be assumed: AccessDenied") as caught:
        served.answer(PATH)
    assert caught.value.trouble is Trouble.CREDENTIALS and "allowed to assume the jobs' role" in caught.value.fix


def test_the_answer_has_what_the_container_credential_provider_reads(agent: Any) -> None:
    answer = credentials(ManualClock()).answer(PATH)
    assert answer is not None and answer.status == 200
    fields = json.loads(answer.body)
    assert set(fields) == {"AccessKeyId", "SecretAccessKey", "Token", "Expiration"}
    assert fields["Expiration"].endswith("Z") and datetime.fromisoformat(fields["Expiration"]) > datetime.now(UTC)
