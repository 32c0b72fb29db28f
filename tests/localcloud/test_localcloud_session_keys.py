"""Temporary keys: services accept keys that STS has issued, until they expire, and no others."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from everspot_local.aws.pod_roles import PodRoles
from everspot_local.options import Options
from localcloud_refusals import refused
from localcloud_worker import Worker, enforcing
from moto.sts.models import sts_backends

JOBS = "arn:aws:iam::123456789012:role/jobs"
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


def test_what_is_not_evaluated_here_limits_no_session(kit: Any) -> None:
    worker = Worker(kit)
    worker.may({"Action": "sts:AssumeRole", "Resource": "*"})
    arn = "arn:aws:iam::123456789012:role/worker"
    managed = {"PolicyArns": [{"arn": "arn:aws:iam::aws:policy/ReadOnlyAccess"}]}
    for more in (managed, {"Tags": [{"Key": "team", "Value": "a"}]}):
        with refused("NotImplemented", status=501):
            worker.client("sts").assume_role(RoleArn=arn, RoleSessionName="session", **more)


@pytest.mark.parametrize("without", ["", "identity", "boundary", "trust", "tags"])
def test_a_session_with_tags_of_a_pod_needs_tag_session_and_has_no_room_for_a_policy(kit: Any, without: str) -> None:
    """As an agent of a cluster on Kubernetes: it assumes the jobs' role with a session policy."""
    iam, eks = kit.client("iam"), kit.client("eks")
    agents, both = JOBS.replace("jobs", "agents"), ["sts:AssumeRole", "sts:TagSession"]
    actions = {part: both if part != without else both[:1] for part in ("identity", "boundary", "trust")}

    def policy(kind: str, **more: Any) -> str:
        statement = {"Effect": "Allow", "Action": actions.get(kind, both), **more}
        return json.dumps({"Version": "2012-10-17", "Statement": [statement]})

    pods = policy("pods", Principal={"Service": "pods.eks.amazonaws.com"})
    bound = iam.create_policy(PolicyName="bound", PolicyDocument=policy("boundary", Resource="*"))["Policy"]["Arn"]
    iam.create_role(RoleName="agents", AssumeRolePolicyDocument=pods, PermissionsBoundary=bound)
    iam.put_role_policy(RoleName="agents", PolicyName="all", PolicyDocument=policy("identity", Resource=JOBS))
    iam.create_role(RoleName="jobs", AssumeRolePolicyDocument=policy("trust", Principal={"AWS": agents}))
    kit.wait_for_role("jobs")
    eks.create_cluster(name="research", roleArn=JOBS, resourcesVpcConfig={"subnetIds": ["subnet-1"]})
    eks.create_pod_identity_association(
        clusterName="research", namespace="n", serviceAccount="a", roleArn=agents, disableSessionTags=without == "tags"
    )
    pod = PodRoles(eks.meta.region_name, "research").assume("n", "a")
    assert pod is not None
    own = {"aws_access_key_id": pod["AccessKeyId"], "aws_secret_access_key": pod["SecretAccessKey"]}
    sts = kit.client("sts", **own, aws_session_token=pod["Token"])
    session = {"RoleArn": JOBS, "RoleSessionName": "a-job"}
    limited = {**session, "Policy": policy("session", Resource="*")}
    expected = {"": ("allowed", "PackedPolicyTooLarge"), "tags": ("allowed", "allowed")}
    assert (code_of(sts.assume_role, session), code_of(sts.assume_role, limited)) == expected.get(
        without, ("AccessDenied", "AccessDenied")
    )


def limited(kit: Any, worker: Worker, *statements: dict[str, Any]) -> Callable[[str], Any]:
    """Return a maker of clients of a session of the role `jobs`, which may do everything in S3, limited to some
    statements."""
    worker.may({"Action": "sts:AssumeRole", "Resource": "*"})
    trust = trusting({"AWS": "arn:aws:iam::123456789012:role/worker"})
    kit.client("iam").create_role(RoleName="jobs", AssumeRolePolicyDocument=trust)
    everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    kit.client("iam").put_role_policy(RoleName="jobs", PolicyName="all", PolicyDocument=json.dumps(everything))
    kit.wait_for_role("jobs")
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **each} for each in statements]}
    session = worker.client("sts").assume_role(RoleArn=JOBS, RoleSessionName="a-job", Policy=json.dumps(policy))
    credentials = session["Credentials"]
    own = {"aws_access_key_id": credentials["AccessKeyId"], "aws_secret_access_key": credentials["SecretAccessKey"]}
    return lambda service: kit.client(service, **own, aws_session_token=credentials["SessionToken"])


def code_of(call: Any, arguments: dict[str, Any]) -> str:
    """Return the code of the answer; `allowed` if it is no refusal."""
    try:
        call(**arguments)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "allowed"


def test_a_session_policy_limits_what_the_role_may(kit: Any) -> None:
    owner, worker = kit.client("s3"), Worker(kit)
    owner.create_bucket(Bucket="data")
    for key in ("jobs/a/1", "jobs/b/1"):
        owner.put_object(Bucket="data", Key=key, Body=b"1")
    objects = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "sqs:ListQueues"]
    prefix = {"StringLike": {"s3:prefix": ["jobs/a/*"]}}
    client = limited(
        kit,
        worker,
        {"Action": objects, "Resource": "arn:aws:s3:::data/jobs/a/*"},
        {"Action": "s3:ListBucket", "Resource": "arn:aws:s3:::data", "Condition": prefix},
    )
    s3 = client("s3")
    own, others = {"Bucket": "data", "Key": "jobs/a/2"}, {"Bucket": "data", "Key": "jobs/b/1"}
    s3.put_object(**own, Body=b"2")
    upload = s3.create_multipart_upload(**own)["UploadId"]
    part = s3.upload_part(**own, UploadId=upload, PartNumber=1, Body=b"3")["ETag"]
    whole = {"Parts": [{"PartNumber": 1, "ETag": part}]}
    s3.complete_multipart_upload(**own, UploadId=upload, MultipartUpload=whole)
    s3.abort_multipart_upload(**own, UploadId=s3.create_multipart_upload(**own)["UploadId"])
    s3.copy_object(Bucket="data", Key="jobs/a/3", CopySource="data/jobs/a/2")
    assert s3.get_object(Bucket="data", Key="jobs/a/3")["Body"].read() == b"3"
    assert s3.list_objects_v2(Bucket="data", Prefix="jobs/a/")["KeyCount"] == 3
    foreign_upload = owner.create_multipart_upload(**others)["UploadId"]
    with_upload = {**others, "UploadId": foreign_upload}
    attempts = (
        (s3.get_object, others),
        (s3.put_object, others),
        (s3.delete_object, others),
        (s3.copy_object, {**own, "CopySource": "data/jobs/b/1"}),
        (s3.copy_object, {**others, "CopySource": "data/jobs/a/2"}),
        (s3.create_multipart_upload, others),
        (s3.upload_part, {**with_upload, "PartNumber": 1, "Body": b"4"}),
        (s3.upload_part_copy, {**own, "UploadId": "none", "PartNumber": 1, "CopySource": "data/jobs/b/1"}),
        (s3.complete_multipart_upload, {**with_upload, "MultipartUpload": whole}),
        (s3.abort_multipart_upload, with_upload),
        (s3.list_parts, with_upload),
        (s3.list_multipart_uploads, {"Bucket": "data"}),
        (s3.list_objects_v2, {"Bucket": "data"}),
        (s3.list_objects_v2, {"Bucket": "data", "Prefix": ""}),
        (s3.list_objects_v2, {"Bucket": "data", "Prefix": "jobs/"}),
        (s3.list_objects, {"Bucket": "data", "Prefix": "jobs/b/"}),
        (s3.list_object_versions, {"Bucket": "data", "Prefix": "jobs/a/"}),
        (s3.get_object, {**own, "VersionId": "null"}),
        (s3.get_object_attributes, {**others, "ObjectAttributes": ["ETag"]}),
        (s3.get_bucket_policy, {"Bucket": "data"}),
        (s3.delete_bucket_policy, {"Bucket": "data"}),
        (s3.put_bucket_versioning, {"Bucket": "data", "VersioningConfiguration": {"Status": "Enabled"}}),
        (s3.delete_bucket, {"Bucket": "data"}),
        (client("sts").assume_role, {"RoleArn": JOBS, "RoleSessionName": "again"}),
        (client("sqs").list_queues, {}),  # the session would allow it, and the role does not
    )
    codes = {f"{call.__name__} {arguments}": code_of(call, arguments) for call, arguments in attempts}
    assert codes == dict.fromkeys(codes, "AccessDenied")
    assert code_of(s3.head_object, others) == "403"  # an answer without a body has no code
    deletion = {"Objects": [{"Key": "jobs/b/1"}]}
    assert s3.delete_objects(Bucket="data", Delete=deletion)["Errors"][0]["Code"] == "AccessDenied"
    assert owner.get_object(**others)["Body"].read() == b"1"


def test_a_session_policy_has_limits_of_its_own(kit: Any) -> None:
    worker = Worker(kit)
    worker.may({"Action": "sts:AssumeRole", "Resource": "*"})
    sts, session = worker.client("sts"), {"RoleArn": JOBS, "RoleSessionName": "a-job"}
    limited(kit, worker, {"Action": "s3:*", "Resource": "*"})
    statement = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    bad = {
        "MalformedPolicyDocument": ("{", "[]", "{}", '{"Statement": []}', '{"Statement": [{"Effect": "Allow"}]}'),
        "ValidationError": (json.dumps({"Statement": [{**statement, "Resource": "x" * 2048}]}),),
    }
    for code, policies in bad.items():
        for policy in policies:
            with refused(code):
                sts.assume_role(**session, Policy=policy)
    with refused("MalformedPolicyDocument", "should not specify a principal"):
        sts.assume_role(**session, Policy=json.dumps({"Statement": [{**statement, "Principal": "*"}]}))
    kit.client("iam").update_role(RoleName="jobs", MaxSessionDuration=7200)
    sts.assume_role(**session, DurationSeconds=3600)
    with refused("ValidationError", "role chaining"):
        sts.assume_role(**session, DurationSeconds=3601)


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
