"""A cluster on AWS with something to take, and the attacker's keys in a test's hands."""

from typing import Any

import boto3
from botocore.exceptions import ClientError
from e2e_attack import DATA
from e2e_helpers import BUCKETS, REGION, LiveCluster
from everspot.aws import policies

SECRET = "/everspot/api-key"


class Attacked(LiveCluster):
    """A cluster with something to take: another job's head and checkpoint, a dataset, code, a shared bucket."""

    further_buckets = True

    def _create(self) -> None:
        s3 = self.client("s3")
        super()._create()
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
