"""Permissions of IAM and KMS calls by resource, and permissions boundaries of roles."""

import json
from pathlib import Path
from typing import Any

import pytest
from everspot_local.options import Options
from localcloud_worker import TRUST, Worker, enforcing, refused

ACCOUNT = "arn:aws:iam::123456789012:"
ALLOWED = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]}
)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    return enforcing(Path(tmp_path_factory.mktemp("named")))


@pytest.fixture
def worker(kit: Any) -> Worker:
    return Worker(kit)


def policy(kit: Any, name: str, *statements: dict[str, Any]) -> str:
    document = {"Version": "2012-10-17", "Statement": list(statements)}
    answer = kit.client("iam").create_policy(PolicyName=name, PolicyDocument=json.dumps(document))
    return str(answer["Policy"]["Arn"])


def test_roles_are_made_under_their_names_with_a_boundary_alone(kit: Any, worker: Worker) -> None:
    bound = policy(kit, "bound", {"Effect": "Allow", "Action": "s3:*", "Resource": "*"})
    only = {"StringEquals": {"iam:PermissionsBoundary": bound}}
    actions = ["iam:CreateRole", "iam:PutRolePolicy"]
    worker.may({"Action": actions, "Resource": f"{ACCOUNT}role/own-*", "Condition": only})
    iam = worker.client("iam")
    trust = {"AssumeRolePolicyDocument": TRUST}
    assert refused(iam.create_role, RoleName="own-free", **trust) == "AccessDenied"
    assert refused(iam.create_role, RoleName="other", PermissionsBoundary=bound, **trust) == "AccessDenied"
    iam.create_role(RoleName="own-bound", PermissionsBoundary=bound, **trust)
    iam.put_role_policy(RoleName="own-bound", PolicyName="p", PolicyDocument=ALLOWED)
    kit.client("iam").create_role(RoleName="own-older", **trust)  # by somebody who may
    assert refused(iam.put_role_policy, RoleName="own-older", PolicyName="p", PolicyDocument=ALLOWED) == "AccessDenied"


def test_who_puts_a_role_into_a_profile_has_to_be_allowed_to_pass_it(kit: Any, worker: Worker) -> None:
    kit.client("iam").create_role(RoleName="passed", AssumeRolePolicyDocument=TRUST)
    kit.client("iam").create_instance_profile(InstanceProfileName="own")
    adds = {"Action": "iam:AddRoleToInstanceProfile", "Resource": f"{ACCOUNT}instance-profile/own"}
    worker.may(adds)
    add = worker.client("iam").add_role_to_instance_profile
    membership = {"InstanceProfileName": "own", "RoleName": "passed"}
    assert refused(add, **membership) == "AccessDenied"
    to_ec2 = {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
    worker.may(adds, {"Action": "iam:PassRole", "Resource": f"{ACCOUNT}role/passed", "Condition": to_ec2})
    add(**membership)


def test_a_key_is_known_by_its_id_its_alias_and_by_what_it_has_encrypted(kit: Any, worker: Worker) -> None:
    owner = kit.client("kms")
    own, other = (owner.create_key()["KeyMetadata"] for _ in range(2))
    owner.create_alias(AliasName="alias/own", TargetKeyId=own["KeyId"])
    worker.may({"Action": ["kms:Encrypt", "kms:Decrypt"], "Resource": own["Arn"]})
    kms = worker.client("kms")
    for name in (own["KeyId"], own["Arn"], "alias/own"):
        sealed = kms.encrypt(KeyId=name, Plaintext=b"1")["CiphertextBlob"]
        assert kms.decrypt(CiphertextBlob=sealed)["Plaintext"] == b"1"
    assert refused(kms.encrypt, KeyId=other["KeyId"], Plaintext=b"1") == "AccessDeniedException"
    sealed = owner.encrypt(KeyId=other["KeyId"], Plaintext=b"1")["CiphertextBlob"]
    assert refused(kms.decrypt, CiphertextBlob=sealed) == "AccessDeniedException"


def test_a_boundary_bounds_what_policies_allow_and_allows_nothing_itself(kit: Any, worker: Worker) -> None:
    kit.client("s3").create_bucket(Bucket="data")
    kit.client("s3").put_object(Bucket="data", Key="a", Body=b"1")
    bound = policy(kit, "reads", {"Effect": "Allow", "Action": "s3:Get*", "Resource": "*"},
                   {"Effect": "Deny", "Action": "*", "Resource": "arn:aws:s3:::data/secret"})  # fmt: skip
    kit.client("iam").put_role_permissions_boundary(RoleName="worker", PermissionsBoundary=bound)
    s3 = worker.client("s3")
    assert refused(s3.get_object, Bucket="data", Key="a") == "AccessDenied"
    worker.may({"Action": "*", "Resource": "*"})
    assert s3.get_object(Bucket="data", Key="a")["Body"].read() == b"1"
    assert refused(s3.put_object, Bucket="data", Key="a", Body=b"2") == "AccessDenied"
    assert refused(s3.get_object, Bucket="data", Key="secret") == "AccessDenied"
    kit.client("iam").delete_role_permissions_boundary(RoleName="worker")
    s3.put_object(Bucket="data", Key="a", Body=b"2")


def test_a_linked_role_is_made_for_the_service_that_a_policy_names(worker: Worker) -> None:
    for_autoscaling = {"StringEquals": {"iam:AWSServiceName": "autoscaling.amazonaws.com"}}
    linked = f"{ACCOUNT}role/aws-service-role/*"
    worker.may({"Action": "iam:CreateServiceLinkedRole", "Resource": linked, "Condition": for_autoscaling})
    make = worker.client("iam").create_service_linked_role
    assert refused(make, AWSServiceName="ecs.amazonaws.com") == "AccessDenied"
    make(AWSServiceName="autoscaling.amazonaws.com")
