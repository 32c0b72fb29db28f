"""Preflight asks AWS for what Karpenter launches nodes with, by real calls to the local cloud."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from api_server_proxy import ApiServerProxy, proxied
from everspot_clouds.base import Check, Verdict
from everspot_clouds.kubernetes.client import KubernetesClient
from everspot_clouds.kubernetes.node_checks import network_checks, pass_role_checks, role_checks
from everspot_clouds.kubernetes.preflight import access_checks
from everspot_clouds.preflight_plan import read_plan
from everspot_core.cluster.preflight import PreflightPlan, cap_checks
from everspot_local.aws.account import ACCOUNT
from everspot_local.cloud import LocalCloud
from everspot_local.market.delays import Delays
from everspot_local.options import Options

SETTINGS = Path(__file__).resolve().parents[2] / "stacks/Pulumi.kubernetes-dev.yaml"
TAG = {"Key": "karpenter.sh/discovery", "Value": "research"}
ROLE, CONTROLLER = "KarpenterNodeRole-research", "KarpenterControllerRole-research"


def plan_with(**elastic: Any) -> PreflightPlan:
    """The plan of the development settings. `elastic`: changes of its elastic capacity."""
    config = yaml.safe_load(SETTINGS.read_text())["config"]
    config["everspot:cluster"]["capacity"]["elastic"].update(elastic)
    plan = read_plan("dev", config, "everspot")
    assert plan is not None
    return plan


@pytest.fixture(scope="module")
def aws_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    folder, delays = tmp_path_factory.mktemp("aws"), Delays(propagation=timedelta())
    with LocalCloud(Options(folder, boot_command=None, region="us-east-2", delays=delays)) as cloud:
        yield cloud


@pytest.fixture
def account(aws_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of an owner of an empty account."""
    aws_cloud.reset()
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-2"}
    for name, value in {"AWS_ENDPOINT_URL": aws_cloud.endpoint, **keys}.items():
        monkeypatch.setenv(name, value)


def create_role(name: str, service: str = "ec2.amazonaws.com") -> str:
    statement = {"Effect": "Allow", "Principal": {"Service": [service]}, "Action": "sts:AssumeRole"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    return str(boto3.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=policy)["Role"]["Arn"])


@pytest.mark.usefixtures("account")
def test_the_nodes_role_has_to_exist_and_to_be_ec2s() -> None:
    iam, plan = boto3.client("iam"), plan_with()
    (missing,) = role_checks(iam, plan)
    assert (missing.group, missing.name, missing.verdict) == ("user", "node role", Verdict.FAIL)
    assert missing.detail == f"there is no role {ROLE}: Karpenter launches no node" and "nodes.role" in missing.fix
    arn = create_role(ROLE)
    assert [(check.verdict, check.detail) for check in role_checks(iam, plan)] == [(Verdict.OK, arn)]
    create_role("other", "lambda.amazonaws.com")
    (refused,) = role_checks(iam, replace(plan, node_role="other"))
    assert refused.verdict is Verdict.FAIL and "EC2 may not take the role other" in refused.detail


def check_network(plan: PreflightPlan) -> dict[str, Check]:
    return {check.name: check for check in network_checks(boto3.client("ec2"), plan)}


@pytest.mark.usefixtures("account")
def test_tags_have_to_find_subnets_in_all_zones_and_security_groups_of_their_vpc() -> None:
    ec2, plan = boto3.client("ec2"), plan_with()
    rows = check_network(plan)
    assert list(rows) == ["node subnets"] and rows["node subnets"].verdict is Verdict.FAIL
    assert rows["node subnets"].detail == (
        "no subnet in us-east-2 has the tags karpenter.sh/discovery=research: Karpenter launches no node"
    )
    subnets = {subnet["AvailabilityZone"]: subnet for subnet in ec2.describe_subnets()["Subnets"]}
    tagged = [subnets[zone]["SubnetId"] for zone in ("us-east-2a", "us-east-2b")]
    ec2.create_tags(Resources=tagged, Tags=[TAG])
    rows = check_network(plan)
    assert rows["node subnets"].verdict is Verdict.FAIL
    assert "is in us-east-2c: nothing is launched there" in rows["node subnets"].detail
    assert rows["node security groups"].verdict is Verdict.FAIL
    assert "no security group in us-east-2 has the tags" in rows["node security groups"].detail
    strange_vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    own_vpc = subnets["us-east-2a"]["VpcId"]
    groups = {
        vpc: ec2.create_security_group(GroupName=f"nodes-{vpc}", Description="nodes", VpcId=vpc)["GroupId"]
        for vpc in (strange_vpc, own_vpc)
    }
    ec2.create_tags(Resources=[subnets["us-east-2c"]["SubnetId"], *groups.values()], Tags=[TAG])
    rows = check_network(plan)
    assert rows["node subnets"].verdict is Verdict.OK
    assert rows["node security groups"].verdict is Verdict.FAIL
    assert rows["node security groups"].detail.startswith(f"{groups[strange_vpc]} with the tags")
    assert "another VPC" in rows["node security groups"].detail
    ec2.delete_tags(Resources=[groups[strange_vpc]], Tags=[TAG])
    assert {row.verdict for row in check_network(plan).values()} == {Verdict.OK}
    anything = {"karpenter.sh/discovery": "*"}
    wider = replace(plan, subnet_tags=anything, security_group_tags=anything)
    assert {row.verdict for row in check_network(wider).values()} == {Verdict.OK}
    narrower = replace(plan, subnet_tags={**plan.subnet_tags, "tier": "private"})
    assert check_network(narrower)["node subnets"].verdict is Verdict.FAIL  # a subnet needs all tags


@pytest.fixture
def server(account: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServerProxy]:
    """An API server that has Karpenter's Deployment."""
    with proxied() as proxy:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setenv("KUBECONFIG", str(proxy.write_kubeconfig(tmp_path, "vision")))
        spec = {"template": {"spec": {"serviceAccountName": "karpenter", "containers": []}}}
        deployment = {"metadata": {"name": "karpenter", "namespace": "kube-system"}, "spec": spec}
        proxy.recorded["/apis/apps/v1/deployments"] = {"items": [deployment]}
        yield proxy


def check_pass_role(plan: PreflightPlan) -> list[Check]:
    client = KubernetesClient.open()
    try:
        return pass_role_checks(boto3.client("iam"), lambda: boto3.client("eks"), plan, client)
    finally:
        client.close()


@pytest.mark.parametrize("by", ["annotation", "association"])
def test_karpenter_has_to_be_allowed_to_pass_the_nodes_role(server: ApiServerProxy, by: str) -> None:
    iam, eks, plan = boto3.client("iam"), boto3.client("eks"), plan_with()
    eks.create_cluster(
        name="research", roleArn=create_role("eks", "eks.amazonaws.com"),
        resourcesVpcConfig={"subnetIds": ["subnet-1", "subnet-2"]},
    )  # fmt: skip
    (unknown,) = check_pass_role(plan)
    assert unknown.verdict is Verdict.SKIP and "is not known" in unknown.detail
    controller = create_role(CONTROLLER, "pods.eks.amazonaws.com")
    if by == "annotation":
        note = {"eks.amazonaws.com/role-arn": controller}
        path = "/api/v1/namespaces/kube-system/serviceaccounts/karpenter"
        server.recorded[path] = {"metadata": {"name": "karpenter", "annotations": note}}
    else:
        eks.create_pod_identity_association(
            clusterName="research", namespace="kube-system", serviceAccount="karpenter", roleArn=controller
        )
    assert check_pass_role(plan) == []  # another check says that the nodes' role is missing
    arn = create_role(ROLE)
    (denied,) = check_pass_role(plan)
    assert (denied.name, denied.verdict) == ("pass role", Verdict.FAIL)
    assert denied.detail == f"Karpenter's role {controller} may not pass {ROLE} to EC2: it launches no node"
    assert f"iam:PassRole for {arn}" in denied.fix
    to_ec2 = {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
    statement = {"Effect": "Allow", "Action": "iam:PassRole", "Resource": arn, "Condition": to_ec2}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_role_policy(RoleName=CONTROLLER, PolicyName="pass", PolicyDocument=policy)
    (allowed,) = check_pass_role(plan)
    assert allowed.verdict is Verdict.OK


@pytest.mark.usefixtures("account")
def test_a_role_of_pull_requests_that_reads_secrets_is_named_with_the_command_that_ends_it() -> None:
    eks, caller = boto3.client("eks"), boto3.client("sts").get_caller_identity()["Arn"]
    assert access_checks(eks, "research", caller) == []  # there is no such cluster
    network = {"subnetIds": ["subnet-1", "subnet-2"]}
    eks.create_cluster(name="research", roleArn=create_role("eks", "eks.amazonaws.com"), resourcesVpcConfig=network)
    assert access_checks(eks, "research", caller) == []  # nobody has an access entry
    policies = "arn:aws:eks::aws:cluster-access-policy/AmazonEKS{}Policy".format
    for name, policy in (("preview", "AdminView"), ("drift", "View"), ("deploy", "ClusterAdmin")):
        place = {"clusterName": "research", "principalArn": f"arn:aws:iam::{ACCOUNT}:role/everspot-bootstrap-{name}"}
        eks.create_access_entry(**place)
        eks.associate_access_policy(**place, policyArn=policies(policy), accessScope={"type": "cluster"})
    (check,) = access_checks(eks, "research", caller)
    assert (check.name, check.verdict) == ("cluster access", Verdict.FAIL)
    assert check.detail == (
        "whoever opens a pull request reads all Secrets of research: "
        "everspot-bootstrap-preview has AmazonEKSAdminViewPolicy"
    )
    cluster, principal, policy = shlex.split(check.fix.partition(",")[0])[4:9:2]
    assert check.fix.startswith("aws eks disassociate-access-policy ") and "everspot-readers" in check.fix
    eks.disassociate_access_policy(clusterName=cluster, principalArn=principal, policyArn=policy)
    assert access_checks(eks, "research", caller) == []


def test_without_karpenter_nobody_passes_a_role(server: ApiServerProxy) -> None:
    server.recorded["/apis/apps/v1/deployments"] = {"items": []}
    assert check_pass_role(plan_with()) == []


@pytest.mark.parametrize(
    ("elastic", "verdict", "words"),
    [
        ({}, None, ""),
        ({"maxUsdPerHour": 10}, Verdict.OK, "maxUsdPerHour 10 has room for g4dn.xlarge on Spot"),
        ({"maxUsdPerHour": 0.001}, Verdict.WARN, "0.001 is less than an hour of any type costs: the cheapest, g"),
        ({"maxUsdPerHour": 0.3, "markets": ["on-demand"]}, Verdict.FAIL, "g4dn.xlarge on-demand, is $0.526"),
        ({"maxUsdPerHour": 0.001, "maxInstances": 0}, None, ""),
    ],
)
def test_a_cap_under_which_nothing_fits_is_named(elastic: dict[str, Any], verdict: Verdict | None, words: str) -> None:
    checks = cap_checks(plan_with(**elastic))
    assert [check.verdict for check in checks] == ([] if verdict is None else [verdict])
    assert all(words in check.detail and check.name == "cap" for check in checks)
