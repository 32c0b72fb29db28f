"""A job's program has its own keys and nothing of others, whatever it tries with the credentials that it finds."""

from functools import partial
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from e2e_attack import DATA, run_attack
from e2e_helpers import BUCKETS, JOB_ROLE, PLAIN, REGION, LiveCluster
from everspot.aws import policies

pytestmark = pytest.mark.timeout(1800)

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
        upload = {"Bucket": DATA, "Key": "jobs/victim/checkpoints/000001/large"}
        upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
        self.upload = upload
        self.part = s3.upload_part(**upload, PartNumber=1, Body=b"theirs")["ETag"]

    def what_is_left(self) -> dict[str, Any]:
        """Return what the other job has now."""
        s3 = self.client("s3")
        listed = s3.list_objects_v2(Bucket=DATA, Prefix="jobs/victim/").get("Contents", [])
        places = [{"Bucket": DATA, "Key": each["Key"]} for each in listed]
        uploads = s3.list_multipart_uploads(Bucket=DATA, Prefix="jobs/victim/").get("Uploads", [])
        return {
            "objects": {place["Key"]: s3.get_object(**place)["Body"].read() for place in places},
            "tags": [tag for place in places for tag in s3.get_object_tagging(**place)["TagSet"]],
            "parts": [part["ETag"] for _ in uploads for part in s3.list_parts(**self.upload)["Parts"]] == [self.part],
        }


def write(live: LiveCluster, result: dict[str, Any], bucket: str, key: str) -> str:
    """Write an object with the attacker's keys; return the error's code, or `allowed`."""
    key_id, secret, token = result["keys"]
    s3 = boto3.client(
        "s3", endpoint_url=live.cloud.endpoint, region_name=REGION,
        aws_access_key_id=key_id, aws_secret_access_key=secret, aws_session_token=token,
    )  # fmt: skip
    try:
        s3.put_object(Bucket=bucket, Key=key, Body=b"{}")
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "allowed"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of the attack. Answers are codes of errors."""
    out = tmp_path_factory.mktemp("attack") / "result.json"
    with Attacked(tmp_path_factory.mktemp("e2e"), agent_env=PLAIN) as live:
        env = {"ATTACK_UPLOAD": live.upload["UploadId"], "ATTACK_PART": live.part}
        result = run_attack(live, out, "attack.py", f"ssm:{SECRET}", partial(write, live), env)
        return {**result, "left": live.what_is_left()}


def test_the_job_has_what_it_needs(attacked: dict[str, Any]) -> None:
    assert attacked["allowed"] == dict.fromkeys(attacked["allowed"], "allowed")
    assert attacked["identity"].startswith(f"{JOB_ROLE.replace(':iam:', ':sts:').replace(':role/', ':assumed-role/')}/")


def test_everything_else_is_refused(attacked: dict[str, Any]) -> None:
    refusals = {"AccessDenied", "UnauthorizedOperation"}
    assert len(attacked["refused"]) > 120
    assert {name: code for name, code in attacked["refused"].items() if code not in refusals} == {}


def test_an_upload_in_parts_is_of_one_key(attacked: dict[str, Any]) -> None:
    """S3 keeps uploads by their keys (API reference, "NoSuchUpload")."""
    assert attacked["borrowed"] == dict.fromkeys(attacked["borrowed"], "NoSuchUpload")


def test_another_job_and_the_fleet_are_as_they_were(attacked: dict[str, Any]) -> None:
    assert attacked["victim's head"]
    assert "i-0123456789abcdef0" not in attacked["instances"]
    assert attacked["left"] == {"objects": {"jobs/victim/secret": b"theirs"}, "tags": [], "parts": True}


def test_the_endpoint_serves_who_knows_the_jobs_secret(attacked: dict[str, Any]) -> None:
    assert attacked["endpoint"] == {"without": "403", "with another": "403", "with its own": "allowed"}


def test_the_job_gets_its_secrets_and_datasets_and_no_way_to_wider_credentials(attacked: dict[str, Any]) -> None:
    assert attacked["api key"] == "s3cret" and attacked["dataset"] == "words"
    assert not {"AWS_ACCESS_KEY_ID", "AWS_EC2_METADATA_SERVICE_ENDPOINT"} & set(attacked["variables"])


def test_keys_that_outlive_the_job_reach_no_later_attempt(attacked: dict[str, Any]) -> None:
    assert attacked["after"] == dict.fromkeys(attacked["after"], "AccessDenied")


def test_keys_that_outlive_the_attempt_still_change_the_jobs_own_head(attacked: dict[str, Any]) -> None:
    """The head is one object for all attempts of a job, whose owner alone is harmed: docs/reference/security.md."""
    assert attacked["own head after"] == "allowed"
