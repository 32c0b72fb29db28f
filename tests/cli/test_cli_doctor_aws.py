"""`everspot doctor` against AWS as moto serves it, through the real client."""

import os
from collections.abc import Iterator

import boto3
import pytest
from everspot_core.cluster.manifest import Manifest
from moto.server import ThreadedMotoServer

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}


@pytest.fixture
def aws(monkeypatch) -> Iterator[dict[str, str]]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    env = {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    yield env
    server.stop()


def client(service: str):
    return boto3.client(service, endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1")


def test_doctor_asks_aws_for_credentials_roles_clock_and_fleet(aws, world):
    for bucket in ("control", "data"):
        client("s3").create_bucket(Bucket=bucket)
    manifest = Manifest(
        cluster="test", cloud="aws", region="us-east-1", control_url="s3://control", data_url="s3://data"
    )
    client("s3").put_object(Bucket="control", Key="cluster.json", Body=manifest.to_json())
    world.url = "s3://control"
    checks = {c["name"]: c for c in world.run("--json", "doctor", env=aws).json["checks"]}
    assert checks["credentials"]["verdict"] == "ok" and "arn:aws" in checks["credentials"]["detail"]
    assert checks["conditional writes"]["verdict"] == "ok"
    assert checks["clock"]["verdict"] == "ok"
    assert checks["service-linked roles"]["verdict"] == "fail"
    assert "pulumi up -s account" in checks["service-linked roles"]["fix"]
    assert checks["fleet"]["verdict"] == "warn"
    assert checks["job role"]["verdict"] == "warn" and "all permissions of the agents" in checks["job role"]["detail"]
    for service in ("ec2fleet.amazonaws.com", "spot.amazonaws.com"):
        client("iam").create_service_linked_role(AWSServiceName=service)
    role_names = {r["RoleName"] for r in client("iam").list_roles()["Roles"]}
    checks = {c["name"]: c for c in world.run("--json", "doctor", env=aws).json["checks"]}
    required_roles = {"AWSServiceRoleForEC2Fleet", "AWSServiceRoleForEC2Spot"}
    assert checks["service-linked roles"]["verdict"] == ("ok" if required_roles <= role_names else "fail"), role_names


@pytest.mark.parametrize(("account", "verdicts"), [("123456789012", []), ("999999999999", ["warn"])])
def test_doctor_says_that_the_credentials_are_of_another_account(aws, world, account, verdicts):
    for bucket in ("control", "data"):
        client("s3").create_bucket(Bucket=bucket)
    manifest = Manifest(
        cluster="test", cloud="aws", region="us-east-1", control_url="s3://control", data_url="s3://data",
        job_role=f"arn:aws:iam::{account}:role/test-job",
    )  # fmt: skip
    client("s3").put_object(Bucket="control", Key="cluster.json", Body=manifest.to_json())
    world.url = "s3://control"
    checks = world.run("--json", "doctor", env=aws).json["checks"]
    assert [check["verdict"] for check in checks if check["name"] == "account"] == verdicts


def test_doctor_looks_for_the_role_of_jobs(aws, world):
    for bucket in ("control", "data"):
        client("s3").create_bucket(Bucket=bucket)
    manifest = Manifest(
        cluster="test", cloud="aws", region="us-east-1", control_url="s3://control", data_url="s3://data",
        job_role="arn:aws:iam::123456789012:role/test-job",
    )  # fmt: skip
    client("s3").put_object(Bucket="control", Key="cluster.json", Body=manifest.to_json())
    world.url = "s3://control"

    def verdict() -> str:
        checks = {c["name"]: c for c in world.run("--json", "doctor", env=aws).json["checks"]}
        return checks["job role"]["verdict"]

    assert verdict() == "fail"
    client("iam").create_role(RoleName="test-job", AssumeRolePolicyDocument="{}")
    assert verdict() == "ok"


def test_a_missing_bucket_is_the_store_s_matter_and_not_the_credentials(aws, world):
    world.url = "s3://nothing-there"
    answer = world.run("--json", "doctor", env=aws)
    assert answer.code == 4
    checks = {c["name"]: c for c in answer.json["checks"]}
    assert (checks["cluster.json"]["verdict"], checks["cluster.json"]["group"]) == ("fail", "store")
    assert checks["credentials"]["verdict"] == "ok"
    assert world.run("jobs", env=aws).code == 4
