"""The demonstration on AWS: its stacks and pools, and boto3 requests for what really exists."""

from typing import Any

import boto3
from everspot_clouds.aws.rules import LAUNCH_TAG

from everspot_local.demo.site import Environment, Site


def leftovers(env: Environment, cluster: str) -> list[str]:
    """Return every resource that the cluster could have left behind, by kind and id; empty when all is deleted."""
    ec2 = client(env, "ec2")
    resources = [f"instance {i['InstanceId']}" for i in _instances(ec2)]
    resources += [
        f"fleet {f['FleetId']}" for f in ec2.describe_fleets()["Fleets"] if not f["FleetState"].startswith("deleted")
    ]
    resources += [f"vpc {v['VpcId']}" for v in ec2.describe_vpcs()["Vpcs"] if not v["IsDefault"]]
    resources += [
        f"endpoint {e['VpcEndpointId']}"
        for e in ec2.describe_vpc_endpoints()["VpcEndpoints"]
        if e["State"] != "deleted"
    ]
    resources += [
        f"launch template {t['LaunchTemplateId']}" for t in ec2.describe_launch_templates()["LaunchTemplates"]
    ]
    resources += [f"volume {v['VolumeId']}" for v in ec2.describe_volumes()["Volumes"]]
    resources += [f"bucket {b['Name']}" for b in client(env, "s3").list_buckets()["Buckets"] if cluster in b["Name"]]
    resources += [f"queue {url}" for url in client(env, "sqs").list_queues().get("QueueUrls", [])]
    resources += [f"rule {r['Name']}" for r in client(env, "events").list_rules()["Rules"] if cluster in r["Name"]]
    groups = client(env, "autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    resources += [f"auto scaling group {g['AutoScalingGroupName']}" for g in groups]
    iam = client(env, "iam")
    resources += [f"role {r['RoleName']}" for r in iam.list_roles()["Roles"] if cluster in r["RoleName"]]
    resources += [f"profile {p['InstanceProfileName']}" for p in iam.list_instance_profiles()["InstanceProfiles"]]
    return resources


def launched(env: Environment) -> list[str]:
    """Return the instances that the scheduler launched for jobs and that have not ended."""
    return [i["InstanceId"] for i in _instances(client(env, "ec2")) if _tags(i).get(LAUNCH_TAG)]


def client(env: Environment, service: str) -> Any:
    """Return a client of one service of the local cloud, with the user's own keys."""
    return boto3.client(
        service, endpoint_url=env["AWS_ENDPOINT_URL"], region_name=env["AWS_REGION"],
        aws_access_key_id=env["AWS_ACCESS_KEY_ID"], aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
    )  # fmt: skip


def _tags(instance: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}


def _instances(ec2: Any) -> list[dict[str, Any]]:
    reservations = ec2.describe_instances()["Reservations"]
    return [i for r in reservations for i in r["Instances"] if i["State"]["Name"] != "terminated"]


SITE = Site(
    cloud="aws",
    account="account",
    cluster="local",
    dry=("c6i.xlarge/*", "m6i.xlarge/*"),
    patient=(),
    folder="demo",
    asked_through="boto3",
    launched=launched,
    leftovers=leftovers,
)
