"""Karpenter on the local AWS: the real program, which `make setup WITH=kubernetes` builds, and what it needs of an
account: subnets and a security group by their tags, a role for nodes, a queue of EC2's events, and the EKS cluster
that the local Kubernetes stands for.

The kinds of events are those of Karpenter's own CloudFormation template ("Getting Started with Karpenter").
"""

import json
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3

from everspot_local.kubernetes.children import Child
from everspot_local.kubernetes.control_plane import LOOPBACK, SERVICE_CIDR, NotReady

CLUSTER = "local"
"""The name of the EKS cluster that the local Kubernetes stands for."""
DISCOVERY = {"karpenter.sh/discovery": CLUSTER}
"""The tags of its subnets and its security group."""
NODE_ROLE = f"KarpenterNodeRole-{CLUSTER}"
READY_WITHIN = timedelta(minutes=3)
"""Real time. It takes 10 s on an idle machine of two cores."""
EVENTS = (
    "EC2 Spot Instance Interruption Warning",
    "EC2 Instance Rebalance Recommendation",
    "EC2 Instance State-change Notification",
)


@dataclass(frozen=True)
class KarpenterAccount:
    """What Karpenter needs of an account.

    Attributes:
        group: The id of the nodes' security group.
        profile: The instance profile of the nodes.
        queue: The name of the queue of EC2's events.
    """

    group: str
    profile: str
    queue: str


def create_account_parts(environment: Mapping[str, str], zones: list[str]) -> KarpenterAccount:
    """Make them. `environment`: of the account's owner; `zones`: one subnet in each."""
    clients = {name: _client(environment, name) for name in ("ec2", "iam", "sqs", "events", "eks")}
    group = _create_network(clients["ec2"], zones)
    iam = clients["iam"]
    for service in ("spot", "ec2fleet"):
        iam.create_service_linked_role(AWSServiceName=f"{service}.amazonaws.com")
    iam.create_role(
        RoleName=NODE_ROLE, AssumeRolePolicyDocument=json.dumps(_allow("ec2.amazonaws.com", "sts:AssumeRole"))
    )
    iam.create_instance_profile(InstanceProfileName=NODE_ROLE)
    iam.add_role_to_instance_profile(InstanceProfileName=NODE_ROLE, RoleName=NODE_ROLE)
    subnets = clients["ec2"].describe_subnets(Filters=[{"Name": "tag:karpenter.sh/discovery", "Values": [CLUSTER]}])
    clients["eks"].create_cluster(
        name=CLUSTER,
        roleArn=iam.get_role(RoleName=NODE_ROLE)["Role"]["Arn"],
        resourcesVpcConfig={"subnetIds": [subnet["SubnetId"] for subnet in subnets["Subnets"]]},
        kubernetesNetworkConfig={"serviceIpv4Cidr": SERVICE_CIDR},
    )
    return KarpenterAccount(group, NODE_ROLE, _create_queue(clients["sqs"], clients["events"]))


def _create_network(ec2: Any, zones: list[str]) -> str:
    """Return the security group of a network with a tagged subnet in each zone."""
    tags = [{"Key": key, "Value": value} for key, value in DISCOVERY.items()]
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    for number, zone in enumerate(zones):
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{number}.0/24", AvailabilityZone=zone)["Subnet"]
        ec2.create_tags(Resources=[subnet["SubnetId"]], Tags=tags)
    group = str(ec2.create_security_group(GroupName=f"{CLUSTER}-nodes", Description="nodes", VpcId=vpc)["GroupId"])
    ec2.create_tags(Resources=[group], Tags=tags)
    return group


def _create_queue(sqs: Any, events: Any) -> str:
    """Return the name of a queue to which EventBridge sends EC2's events."""
    url = sqs.create_queue(QueueName=CLUSTER)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = _allow("events.amazonaws.com", "sqs:SendMessage")
    policy["Statement"][0]["Resource"] = arn
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(policy)})
    for number, kind in enumerate(EVENTS):
        pattern = {"source": ["aws.ec2"], "detail-type": [kind]}
        events.put_rule(Name=f"Karpenter-{CLUSTER}-{number}", EventPattern=json.dumps(pattern))
        events.put_targets(Rule=f"Karpenter-{CLUSTER}-{number}", Targets=[{"Id": "queue", "Arn": arn}])
    return CLUSTER


def _allow(service: str, action: str) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": action}
    return {"Version": "2012-10-17", "Statement": [statement]}


def _client(environment: Mapping[str, str], service: str) -> Any:
    return boto3.client(
        service,
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        region_name=environment["AWS_REGION"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
    )


class Karpenter:
    """A running Karpenter.

    Args:
        program: Its program.
        kubeconfig: Of an administrator.
        server: The URL of the API server.
        queue: The name of the queue of EC2's events.
        environment: Of the account's owner.
        log: The file of its log.
    """

    def __init__(
        self, program: Path, kubeconfig: Path, server: str, queue: str, environment: Mapping[str, str], log: Path
    ) -> None:
        self._log = log
        metrics, self._health = _free_ports()
        own = {
            "KUBECONFIG": str(kubeconfig),
            "CLUSTER_NAME": CLUSTER,
            "CLUSTER_ENDPOINT": server,
            "INTERRUPTION_QUEUE": queue,
            "METRICS_PORT": str(metrics),
            "HEALTH_PROBE_PORT": str(self._health),
            "DISABLE_LEADER_ELECTION": "true",
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(log.parent),
        }
        self._process = Child([str(program)], log, {**environment, **own})

    def await_ready(self) -> None:
        """Wait until it works.

        Raises:
            NotReady: if it ends, or is not ready in time.
        """
        until = time.monotonic() + READY_WITHIN.total_seconds()
        while True:
            if self._process.has_ended:
                raise NotReady(f"Karpenter ended by itself: see {self._log}")
            try:
                with urllib.request.urlopen(f"http://{LOOPBACK}:{self._health}/readyz", timeout=5):
                    return
            except (OSError, urllib.error.HTTPError) as error:
                if time.monotonic() > until:
                    raise NotReady(f"Karpenter is not ready within {READY_WITHIN}: {error}; see {self._log}") from error
            time.sleep(0.2)

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()


def _free_ports() -> tuple[int, int]:
    """Return two ports of the loopback address that were free a moment ago."""
    with socket.socket() as first, socket.socket() as second:
        first.bind((LOOPBACK, 0))
        second.bind((LOOPBACK, 0))
        return int(first.getsockname()[1]), int(second.getsockname()[1])
