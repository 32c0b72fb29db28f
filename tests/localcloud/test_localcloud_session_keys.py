"""Temporary keys: a service takes those that STS has given, while they last, and nobody else's."""

import json
import urllib.error
import urllib.request
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_local.options import Options
from localcloud_refusals import refused
from localcloud_worker import Worker, enforcing
from moto.sts.models import sts_backends

CALLS = {
    "ec2": ("describe_instances", {}, "AuthFailure", "RequestExpired"),
    "s3": ("list_buckets", {}, "InvalidAccessKeyId", "ExpiredToken"),
    "sqs": ("list_queues", {}, "UnrecognizedClientException", "ExpiredTokenException"),
    "ssm": ("get_parameter", {"Name": "/a"}, "UnrecognizedClientException", "ExpiredTokenException"),
    "iam": ("list_roles", {}, "InvalidClientTokenId", "ExpiredToken"),
    "autoscaling": ("describe_auto_scaling_groups", {}, "InvalidClientTokenId", "ExpiredToken"),
}


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    return enforcing(Path(tmp_path_factory.mktemp("keys")))


def trusting(principal: dict[str, str], **more: Any) -> str:
    statement = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole", **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def keys(key: str, token: str | None = None) -> dict[str, str]:
    pair = {"aws_access_key_id": key, "aws_secret_access_key": "secret"}
    return pair if token is None else {**pair, "aws_session_token": token}


@pytest.mark.parametrize("service", CALLS)
def test_keys_that_sts_has_not_given_are_nobodys(kit: Any, service: str) -> None:
    call, arguments, invalid, _ = CALLS[service]
    for credentials in (keys("ASIAUNKNOWN", "made-up"), keys("ASIAUNKNOWN"), keys("test", "made-up")):
        with refused(invalid):
            getattr(kit.client(service, **credentials), call)(**arguments)


@pytest.mark.parametrize("service", CALLS)
def test_keys_end(kit: Any, service: str) -> None:
    call, arguments, _, expired = CALLS[service]
    worker = Worker(kit)
    worker.may({"Action": "*", "Resource": "*"})
    client = worker.client(service)
    if service != "ssm":  # which has no such parameter
        getattr(client, call)(**arguments)
    (session,) = sts_backends["123456789012"]["aws"].assumed_roles
    session.expiration -= timedelta(days=1)
    with refused(expired):
        getattr(client, call)(**arguments)


def test_another_sessions_token_is_not_ones_own(kit: Any) -> None:
    worker = Worker(kit)
    credentials = kit.cloud.account.metadata.source.credentials.role_credentials(
        kit.cloud.machines.find(worker.instance_id).instance
    )
    with refused("InvalidToken"):
        kit.client("s3", **keys(credentials["AccessKeyId"], "another")).list_buckets()


def test_a_presigned_address_has_the_permissions_of_its_signer(kit: Any) -> None:
    owner, worker = kit.client("s3"), Worker(kit)
    owner.create_bucket(Bucket="control")
    owner.put_object(Bucket="control", Key="a", Body=b"1")
    address = worker.client("s3").generate_presigned_url("get_object", Params={"Bucket": "control", "Key": "a"})
    assert status(address) == 403
    worker.may({"Action": "s3:GetObject", "Resource": "arn:aws:s3:::control/*"})
    assert status(address) == 200


def status(address: str) -> int:
    try:
        with urllib.request.urlopen(address) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_an_instance_gets_no_keys_of_a_role_that_does_not_trust_ec2(kit: Any) -> None:
    worker = Worker(kit)
    source = kit.cloud.account.metadata.source.credentials
    instance = kit.cloud.machines.find(worker.instance_id).instance
    assert source.role_credentials(instance)["Code"] == "Success"
    trust = trusting({"Service": "events.amazonaws.com"})
    kit.client("iam").update_assume_role_policy(RoleName="worker", PolicyDocument=trust)
    refusal = source.role_credentials(instance)
    assert refusal["Code"] == "AssumeRoleUnauthorizedAccess" and "AccessKeyId" not in refusal
    assert datetime.fromisoformat(refusal["LastUpdated"])


def test_sessions_are_not_wider_than_asked_for(kit: Any) -> None:
    worker = Worker(kit)
    worker.may({"Action": "sts:AssumeRole", "Resource": "*"})
    arn = "arn:aws:iam::123456789012:role/worker"
    for more in ({"Policy": '{"Statement": []}'}, {"Tags": [{"Key": "team", "Value": "a"}]}):
        with refused("NotImplemented", status=501):
            worker.client("sts").assume_role(RoleArn=arn, RoleSessionName="session", **more)


def test_an_external_id_is_compared(kit: Any) -> None:
    worker = Worker(kit)
    worker.may({"Action": "sts:AssumeRole", "Resource": "*"})
    arn = "arn:aws:iam::123456789012:role/worker"
    trust = trusting({"AWS": arn}, Condition={"StringEquals": {"sts:ExternalId": "their-id"}})
    kit.client("iam").create_role(RoleName="guest", AssumeRolePolicyDocument=trust)
    kit.wait_for_role("guest")
    sts, guest = worker.client("sts"), "arn:aws:iam::123456789012:role/guest"
    sts.assume_role(RoleArn=guest, RoleSessionName="session", ExternalId="their-id")
    for more in ({}, {"ExternalId": "another"}):
        with refused("AccessDenied"):
            sts.assume_role(RoleArn=guest, RoleSessionName="session", **more)
