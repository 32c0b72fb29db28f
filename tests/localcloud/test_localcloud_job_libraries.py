"""Users' own programs with a job's session: boto3, s3fs and the AWS CLI have its own keys, and no others."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from everspot.aws import policies
from everspot_store import ManualClock
from job_libraries import (
    FILE_SYSTEM_CALLS,
    LARGE,
    LIBRARIES,
    OTHER,
    OWN,
    THEIRS,
    JobPrograms,
    job_programs,
    require_libraries,
)
from test_localcloud_job_credentials import agent, credentials, options

__all__ = ["agent", "options"]


@pytest.fixture
def job(agent: Any, tmp_path: Path) -> Iterator[JobPrograms]:
    """A job, beside which another one has a checkpoint."""
    require_libraries()
    s3, arns = agent.client("s3"), {}
    for bucket in ("control", "data"):
        s3.create_bucket(Bucket=bucket)
        arns[f"{bucket}_arn"] = f"arn:aws:s3:::{bucket}"
    s3.put_object(Bucket="data", Key=THEIRS, Body=b"theirs")
    agent.client("iam").put_role_policy(
        RoleName="jobs", PolicyName="all", PolicyDocument=json.dumps(policies.job_policy(**arns))
    )
    agent.wait_for_role("jobs")
    variables = {"AWS_ENDPOINT_URL": agent.cloud.endpoint, "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}
    with job_programs(credentials(ManualClock()), tmp_path, variables) as programs:
        yield programs


def test_boto3_reads_writes_and_lists_the_jobs_keys_alone(job: JobPrograms) -> None:
    answers = job.run(f"""
import boto3, io
s3 = boto3.client("s3")
names = lambda prefix: [each["Key"] for each in s3.list_objects_v2(Bucket="data", Prefix=prefix)["Contents"]]
attempt("write", lambda: s3.put_object(Bucket="data", Key="{OWN}/a", Body=b"1"))
attempt("write in parts", lambda: s3.upload_fileobj(io.BytesIO(bytes({LARGE})), "data", "{OWN}/b"))
attempt("read", lambda: len(s3.get_object(Bucket="data", Key="{OWN}/b")["Body"].read()))
attempt("list", lambda: names("jobs/mine/"))
attempt("delete", lambda: s3.delete_object(Bucket="data", Key="{OWN}/a"))
attempt("PutObject another's", lambda: s3.put_object(Bucket="data", Key="{OTHER}/a", Body=b"1"))
attempt("CreateMultipartUpload another's", lambda: s3.upload_fileobj(io.BytesIO(bytes({LARGE})), "data", "{OTHER}/b"))
attempt("GetObject another's", lambda: s3.get_object(Bucket="data", Key="{THEIRS}"))
attempt("ListObjectsV2 another's", lambda: names("jobs/other/"))
attempt("DeleteObject another's", lambda: s3.delete_object(Bucket="data", Key="{THEIRS}"))
""")
    refused = {name: answers.pop(name) for name in list(answers) if "another's" in name}
    assert answers == {
        "write": "done", "write in parts": "done", "read": LARGE, "list": [f"{OWN}/a", f"{OWN}/b"], "delete": "done",
    }  # fmt: skip
    actions = {"CreateMultipartUpload": "PutObject", "ListObjectsV2": "ListBucket"}
    for name, error in refused.items():
        operation = name.split()[0]
        assert "AccessDenied" in error and f"s3:{actions.get(operation, operation)} on resource" in error, error
        assert "no session policy allows" in error


def test_s3fs_reads_writes_and_lists_the_jobs_keys_alone(job: JobPrograms) -> None:
    answers = job.run(f"""
import s3fs
files = s3fs.S3FileSystem()
{FILE_SYSTEM_CALLS}""")
    refused = {name: answers.pop(name) for name in list(answers) if "another's" in name}
    assert answers == {
        "write": "done", "write in parts": "done", "read": LARGE, "list": [f"data/{OWN}/a", f"data/{OWN}/b"],
        "find": [f"data/{OWN}/b"], "size": LARGE, "delete": [f"data/{OWN}/a"],
    }  # fmt: skip
    assert refused.pop("read another's") == "PermissionError: Forbidden"  # s3fs asks by HEAD, whose answer has no words
    for error in refused.values():
        assert error.startswith("PermissionError: ") and "is not authorized to perform: s3:" in error, error


def test_the_aws_cli_reads_writes_and_lists_the_jobs_keys_alone(job: JobPrograms) -> None:
    def aws(*words: str) -> tuple[int, str]:
        answer = job.call(str(LIBRARIES / "aws"), "s3", *words)
        return answer.returncode, answer.stdout if answer.returncode == 0 else answer.stderr

    (job.folder / "large").write_bytes(bytes(LARGE))
    assert aws("cp", "large", f"s3://data/{OWN}/large")[0] == 0
    status, listing = aws("ls", f"s3://data/{OWN}/")
    assert status == 0 and listing.split()[-2:] == [str(LARGE), "large"]
    assert aws("cp", f"s3://data/{OWN}/large", "back")[0] == 0
    assert (job.folder / "back").read_bytes() == bytes(LARGE)
    status, error = aws("cp", "large", f"s3://data/{OTHER}/large")
    assert status == 1 and "AccessDenied" in error and "is not authorized to perform: s3:PutObject" in error
