"""A job's program has its own keys and nothing of others, whatever it tries with the credentials that it finds."""

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from e2e_helpers import BUCKETS, JOB_ROLE, PLAIN, REGION, LiveCluster
from everspot.aws import policies
from everspot_core.jobs.checkpoint import CheckpointHead
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import JobState

pytestmark = pytest.mark.timeout(1800)

PROGRAM = Path(__file__).parent / "programs"
CONTROL, DATA = BUCKETS
SECRET = "/everspot/api-key"


class Attacked(LiveCluster):
    """A cluster with something to take: another job's head and checkpoint, a dataset, code, a shared bucket."""

    further_buckets = True

    def _lay(self) -> None:
        s3 = self.client("s3")
        super()._lay()
        s3.create_bucket(Bucket="shared-data", CreateBucketConfiguration={"LocationConstraint": REGION})
        s3.put_object(Bucket="shared-data", Key="corpus", Body=b"words")
        control, data = (f"arn:aws:s3:::{bucket}" for bucket in BUCKETS)
        shared = "arn:aws:s3:::shared-data"
        self.allow("e2e-job", "all", policies.job_policy(control_arn=control, data_arn=data, read_arns=[shared]))
        parameter = "arn:aws:ssm:eu-west-1:123456789012:parameter/everspot/api-key"
        self.allow(
            "e2e-agent", "secrets", policies.document([policies.allow("Read", ["ssm:GetParameter"], [parameter])])
        )
        self.client("ssm").put_parameter(Name=SECRET, Value="s3cret", Type="SecureString")
        for key in ("jobs/victim/secret", "code/0123.tar.gz", "datasets/private/1.json", "agents/i-1/000000.log"):
            s3.put_object(Bucket=DATA, Key=key, Body=b"theirs")


def attack(live: LiveCluster, out: Path) -> str:
    env = {
        "ATTACK_CONTROL": CONTROL, "ATTACK_DATA": DATA, "ATTACK_OWN": "attacker", "ATTACK_VICTIM": "victim",
        "ATTACK_CODE": "code/0123.tar.gz", "ATTACK_OUT": str(out),
    }  # fmt: skip
    words = {"name": "attacker", "entrypoint": ["attack.py"], "code": str(PROGRAM), "env": env}
    folder = out.parent / "corpus"
    folder.mkdir()
    (folder / "words.txt").write_text("words")
    dataset = live.store.datasets.put("corpus", folder)
    spec = JobSpec.model_validate(words | {"secrets": {"API_KEY": f"ssm:{SECRET}"}, "datasets": ["corpus"]})
    job = JobSubmission(job_id="attacker", spec=spec, submitted_at=live.clock.now(), datasets=[dataset.id])
    return live.store.submit(job, PROGRAM).job_id


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the attacker found, the state of the victim, and what the attacker's keys are worth after the job's end."""
    out = tmp_path_factory.mktemp("attack") / "result.json"
    with Attacked(tmp_path_factory.mktemp("e2e"), agent_env=PLAIN) as live:
        victim = CheckpointHead(job_id="victim", epoch=3)
        written = live.store.heads.create("victim", victim)
        assert written is not None
        job = attack(live, out)
        live.until(lambda: out.exists() or live.ended(job))
        assert out.exists(), b"".join(chunk.data for chunk in live.store.logs.read(job)).decode()
        result: dict[str, Any] = json.loads(out.read_text())
        out.with_suffix(".end").touch()
        assert live.until(lambda: live.ended(job)) is JobState.SUCCEEDED
        head = live.store.heads.get("victim")
        assert head is not None
        result["victim's head"] = head.etag == written.etag
        result["instances"] = sorted(live.store.instances.scan())
        key, secret, token = result["keys"]
        s3 = boto3.client(
            "s3", endpoint_url=live.cloud.endpoint, region_name=REGION,
            aws_access_key_id=key, aws_secret_access_key=secret, aws_session_token=token,
        )  # fmt: skip
        result["after"] = {}
        for name, bucket, place in (
            ("the next attempt's checkpoints", DATA, f"jobs/attacker/checkpoints/{result['epoch'] + 1:06d}/x"),
            ("another's head", CONTROL, "heads/victim.json"),
            ("a phantom instance", CONTROL, "instances/i-0123456789abcdef0.json"),
        ):
            try:
                s3.put_object(Bucket=bucket, Key=place, Body=b"{}")
                result["after"][name] = "allowed"
            except ClientError as error:
                result["after"][name] = error.response["Error"]["Code"]
    return result


def test_the_job_has_what_it_needs(attacked: dict[str, Any]) -> None:
    assert attacked["allowed"] == dict.fromkeys(attacked["allowed"], "allowed")
    assert attacked["identity"].startswith(f"{JOB_ROLE.replace(':iam:', ':sts:').replace(':role/', ':assumed-role/')}/")


def test_everything_else_is_refused(attacked: dict[str, Any]) -> None:
    refusals = {"AccessDenied", "UnauthorizedOperation"}
    assert len(attacked["refused"]) > 40
    assert {name: code for name, code in attacked["refused"].items() if code not in refusals} == {}


def test_another_jobs_head_and_the_fleet_are_as_they_were(attacked: dict[str, Any]) -> None:
    assert attacked["victim's head"]
    assert "i-0123456789abcdef0" not in attacked["instances"]


def test_the_endpoint_serves_who_knows_the_jobs_secret(attacked: dict[str, Any]) -> None:
    assert attacked["endpoint"] == {"without": "403", "with another": "403", "with its own": "allowed"}


def test_the_job_gets_its_secrets_and_datasets_and_no_way_to_wider_credentials(attacked: dict[str, Any]) -> None:
    assert attacked["api key"] == "s3cret" and attacked["dataset"] == "words"
    assert not {"AWS_ACCESS_KEY_ID", "AWS_EC2_METADATA_SERVICE_ENDPOINT"} & set(attacked["variables"])


def test_keys_that_outlive_the_job_reach_no_later_attempt(attacked: dict[str, Any]) -> None:
    assert attacked["after"] == dict.fromkeys(attacked["after"], "AccessDenied")
