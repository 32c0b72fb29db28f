"""What was added by hand and no refresh sees: on AWS asked of moto, on Google Cloud of answers such as its API's."""

import json
from typing import Any

import boto3
import pytest
from everspot_clouds.base.drift import KeptResource
from everspot_clouds.gcp import drift as gcp
from everspot_clouds.registry import UnknownCloud, added_by_hand

POLICY = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})


def kept(kind: str, id: str, inputs: dict[str, Any] | None = None, **outputs: Any) -> KeptResource:
    return KeptResource(f"urn:pulumi:dev::p::{kind}::{id}", kind, id, inputs or {}, outputs)


def test_rules_and_policies_that_are_in_no_state_are_found_and_declared_ones_are_not(aws: str) -> None:
    ec2, iam = boto3.client("ec2", "us-east-1"), boto3.client("iam", "us-east-1")
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    names = ("drift-ours", "drift-inline", "drift-stranger")
    ours, inline, stranger = (
        ec2.create_security_group(GroupName=name, Description="d", VpcId=vpc)["GroupId"] for name in names
    )

    def opened(group: str, port: int) -> str:
        door = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
        answer = ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[door])
        return str(answer["SecurityGroupRules"][0]["SecurityGroupRuleId"])

    declared = opened(ours, 443)
    for group in (ours, inline, stranger):
        opened(group, 22)
    iam.create_role(RoleName="drift-role", AssumeRolePolicyDocument=TRUST)
    iam.put_role_policy(RoleName="drift-role", PolicyName="declared", PolicyDocument=POLICY)
    iam.put_role_policy(RoleName="drift-role", PolicyName="by-hand", PolicyDocument=POLICY)
    arn = iam.create_policy(PolicyName="drift-policy", PolicyDocument=POLICY)["Policy"]["Arn"]
    iam.attach_role_policy(RoleName="drift-role", PolicyArn=arn)
    resources = [
        kept("aws:ec2/securityGroup:SecurityGroup", ours, {"egress": []}, region="us-east-1"),
        kept("aws:ec2/securityGroup:SecurityGroup", inline, {"ingress": [], "egress": []}, region="us-east-1"),
        kept("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", declared),
        kept("aws:iam/role:Role", "drift-role"),
        kept("aws:iam/rolePolicy:RolePolicy", "drift-role:declared", role="drift-role", name="declared"),
    ]
    found = added_by_hand("aws", resources)
    assert [(each.kind, each.what) for each in found] == [
        ("ingress rule", "tcp, port 22, from 0.0.0.0/0"), ("attached policy", arn), ("inline policy", "by-hand"),
    ]  # fmt: skip
    assert {each.urn for each in found} == {resources[0].urn, resources[3].urn}


class Answers:
    """Google's API, as far as the look asks it."""

    project = "acme"

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers

    def pages(self, product: str, path: str, **_: Any) -> list[Any]:
        return [self.answers[f"{product} {path}"]]

    def get(self, product: str, path: str, **_: Any) -> Any:
        return self.answers[f"{product} {path}"]

    def post(self, product: str, path: str, body: Any = None, **_: Any) -> Any:
        assert body == {"options": {"requestedPolicyVersion": 3}}
        return self.answers[f"{product} {path}"]

    def call(self, method: str, product: str, path: str, *, query: Any) -> Any:
        assert (method, query) == ("POST", {"options.requestedPolicyVersion": 3})
        return self.answers[f"{product} {path}"]

    def close(self) -> None:
        pass


def bound(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"bindings": [{"role": role, "members": [member]} for role, member in pairs]}


def test_firewall_rules_and_bindings_that_are_in_no_state_are_found_on_google_cloud(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    email = "agent@acme.iam.gserviceaccount.com"
    account, network = f"projects/acme/serviceAccounts/{email}", "https://x/projects/acme/global/networks/net"
    allowed = [{"IPProtocol": "tcp", "ports": ["22"]}]
    api = Answers({
        "compute projects/acme/global/firewalls": {"items": [
            {"name": "declared", "network": network, "allowed": allowed},
            {"name": "by-hand", "network": network, "allowed": allowed, "sourceRanges": ["0.0.0.0/0"]},
            {"name": "elsewhere", "network": f"{network}-2", "allowed": allowed},
        ]},
        "resourcemanager projects/acme:getIamPolicy": bound(
            ("roles/mine", f"serviceAccount:{email}"), ("roles/owner", f"serviceAccount:{email}"),
            ("roles/owner", "user:boss@acme.test"),
        ),
        f"iam {account}:getIamPolicy": bound(("roles/iam.serviceAccountUser", "user:eve@acme.test")),
        "storage b/data/iam": bound(
            ("roles/storage.legacyBucketOwner", "projectOwner:acme"), ("roles/storage.objectViewer", "allUsers"),
        ),
    })  # fmt: skip
    monkeypatch.setattr(gcp, "open_api", lambda clock, project: api)
    found = added_by_hand("gcp", [
        kept(gcp.NETWORK, "projects/acme/global/networks/net", project="acme", name="net"),
        kept(gcp.FIREWALL, "declared", project="acme", name="declared"),
        kept(gcp.ACCOUNT, account, project="acme", email=email),
        kept(gcp.PROJECT_ROLES[0], "b", project="acme", role="roles/mine", member=f"serviceAccount:{email}"),
        kept(gcp.BUCKET, "data", project="acme", name="data"),
    ])  # fmt: skip
    assert [(each.kind, each.what) for each in found] == [
        ("firewall rule", "by-hand allows tcp 22 from 0.0.0.0/0"),
        ("role of the account", "roles/owner in project acme"),
        ("use of the account", "roles/iam.serviceAccountUser for user:eve@acme.test"),
        ("use of the bucket", "roles/storage.objectViewer for allUsers"),
    ]


def test_only_what_a_stack_manages_itself_is_looked_at() -> None:
    base = {"urn": "u", "type": "t", "id": "i", "custom": True}
    items = [base, {**base, "external": True}, {**base, "custom": False}, {**base, "delete": True}, {**base, "id": ""}]
    assert len(KeptResource.of_state({"deployment": {"resources": items}})) == 1
    with pytest.raises(UnknownCloud, match="it is on aws, gcp"):
        added_by_hand("mars", [])
