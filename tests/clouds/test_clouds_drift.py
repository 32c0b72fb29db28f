"""Manual additions that a refresh does not detect: on AWS through moto, on Google Cloud through the local cloud."""

import json
from typing import Any

import boto3
import pytest
from everspot_clouds.base.drift import KeptResource
from everspot_clouds.gcp import drift as gcp
from everspot_clouds.registry import UnknownCloud, added_by_hand
from everspot_local.cloud import LocalCloud
from google_site import GoogleSite

POLICY = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})


def stack_resource(kind: str, id: str, inputs: dict[str, Any] | None = None, **outputs: Any) -> KeptResource:
    return KeptResource(f"urn:pulumi:dev::p::{kind}::{id}", kind, id, inputs or {}, outputs)


def test_rules_and_policies_that_are_in_no_state_are_found_and_declared_ones_are_not(aws: str) -> None:
    ec2, iam = boto3.client("ec2", "us-east-1"), boto3.client("iam", "us-east-1")
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    names = ("drift-ours", "drift-inline", "drift-stranger")
    own, inline, stranger = (
        ec2.create_security_group(GroupName=name, Description="d", VpcId=vpc)["GroupId"] for name in names
    )

    def opened(group: str, port: int) -> str:
        remote_access = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
        answer = ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[remote_access])
        return str(answer["SecurityGroupRules"][0]["SecurityGroupRuleId"])

    declared = opened(own, 443)
    for group in (own, inline, stranger):
        opened(group, 22)
    iam.create_role(RoleName="drift-role", AssumeRolePolicyDocument=TRUST)
    iam.put_role_policy(RoleName="drift-role", PolicyName="declared", PolicyDocument=POLICY)
    iam.put_role_policy(RoleName="drift-role", PolicyName="by-hand", PolicyDocument=POLICY)
    arn = iam.create_policy(PolicyName="drift-policy", PolicyDocument=POLICY)["Policy"]["Arn"]
    iam.attach_role_policy(RoleName="drift-role", PolicyArn=arn)
    resources = [
        stack_resource("aws:ec2/securityGroup:SecurityGroup", own, {"egress": []}, region="us-east-1"),
        stack_resource(
            "aws:ec2/securityGroup:SecurityGroup", inline, {"ingress": [], "egress": []}, region="us-east-1"
        ),
        stack_resource("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", declared),
        stack_resource("aws:iam/role:Role", "drift-role"),
        stack_resource("aws:iam/rolePolicy:RolePolicy", "drift-role:declared", role="drift-role", name="declared"),
    ]
    added = added_by_hand("aws", resources)
    assert [(each.kind, each.detail) for each in added] == [
        ("ingress rule", "tcp, port 22, from 0.0.0.0/0"), ("attached policy", arn), ("inline policy", "by-hand"),
    ]  # fmt: skip
    assert {each.urn for each in added} == {resources[0].urn, resources[3].urn}


PROJECT = "everspot-local"


def test_firewall_rules_and_bindings_that_are_in_no_state_are_found_on_google_cloud(google: LocalCloud) -> None:
    site = GoogleSite(google)
    site.build()
    site.do("POST", "global/networks", {"name": "elsewhere", "autoCreateSubnetworks": False})
    for name, network in (("declared", "net"), ("by-hand", "net"), ("others", "elsewhere")):
        body = {"name": name, "network": f"global/networks/{network}", "sourceRanges": ["0.0.0.0/0"],
                "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}]}  # fmt: skip
        site.do("POST", "global/firewalls", body)
    created = site.api.post("iam", f"projects/{PROJECT}/serviceAccounts", {"accountId": "agent-1"})
    email, account = created["email"], created["name"]
    agent, boss = f"serviceAccount:{email}", "user:boss@acme.test"
    site.api.call("POST", "storage", "b", query={"project": PROJECT}, body={"name": "data-1"})
    roles = (("roles/viewer", agent), ("roles/owner", agent), ("roles/owner", boss))
    site.bind("resourcemanager", f"projects/{PROJECT}:setIamPolicy", "POST", *roles)
    site.bind("iam", f"{account}:setIamPolicy", "POST", ("roles/iam.serviceAccountUser", "user:eve@acme.test"))
    site.bind("storage", "b/data-1/iam", "PUT", ("roles/storage.objectViewer", "allUsers"))
    added = added_by_hand("gcp", [
        stack_resource(gcp.NETWORK, f"projects/{PROJECT}/global/networks/net", project=PROJECT, name="net"),
        stack_resource(gcp.FIREWALL, "declared", project=PROJECT, name="declared"),
        stack_resource(gcp.ACCOUNT, account, project=PROJECT, email=email),
        stack_resource(gcp.PROJECT_ROLES[0], "b", project=PROJECT, role="roles/viewer", member=agent),
        stack_resource(gcp.BUCKET, "data-1", project=PROJECT, name="data-1"),
    ])  # fmt: skip
    assert [(each.kind, each.detail) for each in added] == [
        ("firewall rule", "by-hand allows tcp 22 from 0.0.0.0/0"),
        ("role of the account", f"roles/owner in project {PROJECT}"),
        ("use of the account", "roles/iam.serviceAccountUser for user:eve@acme.test"),
        ("use of the bucket", "roles/storage.objectViewer for allUsers"),
    ]


def test_only_what_a_stack_manages_itself_is_looked_at() -> None:
    base = {"urn": "u", "type": "t", "id": "i", "custom": True}
    items = [base, {**base, "external": True}, {**base, "custom": False}, {**base, "delete": True}, {**base, "id": ""}]
    assert len(KeptResource.of_state({"deployment": {"resources": items}})) == 1
    with pytest.raises(UnknownCloud, match="only on aws, gcp"):
        added_by_hand("mars", [])
