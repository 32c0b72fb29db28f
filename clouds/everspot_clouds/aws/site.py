"""The resources of a cluster in AWS that cost money, found by its tag, for `everspot cluster down`."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Manifest
from everspot_core.estimate.requested import HOURS_A_MONTH

from everspot_clouds.aws import capacity, errors, fixed_prices
from everspot_clouds.aws.instances import KARPENTER, Ownership, owned_by_store, read_tags
from everspot_clouds.aws.rules import (
    CLUSTER_TAG,
    FLEET_TAG,
    GROUP_TAG,
    LAUNCH_TAG,
    ROLE_TAG,
    STORE_TAG,
    dns_suffix,
)
from everspot_clouds.base import RemainingResource

ALIVE = ("pending", "running", "stopping", "stopped", "shutting-down")
"""States of instances that have not ended. An instance that is shutting down is about to end."""
_FLEETS = ("submitted", "active", "modifying", "deleted_running", "deleted_terminating")
INSTANCE = "instance"
_REMOVALS = {
    INSTANCE: "ec2 terminate-instances --instance-ids {name}",
    "fleet": "ec2 delete-fleets --terminate-instances --fleet-ids {name}",
    "Auto Scaling group": "autoscaling delete-auto-scaling-group --force-delete --auto-scaling-group-name {name}",
    "volume": "ec2 delete-volume --volume-id {name}",
    "VPC endpoint": "ec2 delete-vpc-endpoints --vpc-endpoint-ids {name}",
    "NAT gateway": "ec2 delete-nat-gateway --nat-gateway-id {name}",
    "address": "ec2 release-address --allocation-id {name}",
    "launch-template": "ec2 delete-launch-template --launch-template-id {name}",
    "security-group": "ec2 delete-security-group --group-id {name}",
    "subnet": "ec2 delete-subnet --subnet-id {name}",
    "vpc": "ec2 delete-vpc --vpc-id {name}",
    "queue": "sqs delete-queue --queue-url {detail}",
    "alarm": "cloudwatch delete-alarms --alarm-names {name}",
    "bucket": "s3 rb s3://{name}",
    "key": "kms schedule-key-deletion --key-id {name}",
}
"""The AWS CLI's commands, by the kind of the resource."""

_BILLED = ("instance", "spot-instances-request", "fleet", "volume", "vpc-endpoint", "natgateway", "elastic-ip")
"""Types of resources, as DescribeTags calls them, that `remaining` lists, or that are deleted together with them."""

_SERVICES = {"sqs": "queue", "events": "rule", "cloudwatch": "alarm", "s3": "bucket", "kms": "key", "logs": "log group"}
"""Kinds of resources by the service in their ARN; any other service is called by its own name."""

_REMOVED = ("queue", "rule", "alarm")
"""Kinds that hold no data."""

_GONE = (".NotFound", "NotFoundException", "DoesNotExist", "NonExistentQueue", "Unknown", "NotInDeletableState")
"""Ends of the codes of errors about what is gone already, or is being deleted."""

_PRICES = {
    "queue": 0.0,
    "rule": 0.0,
    "alarm": float(fixed_prices.ALARM.usd) / HOURS_A_MONTH,
    "key": float(fixed_prices.KEY.usd) / HOURS_A_MONTH,
}
"""USD per hour; what else costs depends on its use."""

_CONFIG = Config(connect_timeout=5, read_timeout=15, retries={"mode": "standard", "total_max_attempts": 4})


class AwsSite:
    """The `Site` of a cluster in AWS, with the user's credentials."""

    def __init__(self, manifest: Manifest, is_own: Ownership | None = None) -> None:
        """Make clients for the manifest's region. `is_own`: by default the ownership by the store's mark."""
        try:
            session = boto3.Session(region_name=manifest.region or os.environ.get("AWS_REGION"))
            self._client = partial(session.client, config=_CONFIG)
            self._ec2, self._scaling, self._s3 = map(self._client, ("ec2", "autoscaling", "s3"))
        except BotoCoreError as error:
            raise errors.to_cloud_error(error) from error
        self._cluster, self._region = manifest.cluster, self._ec2.meta.region_name
        self._is_own = is_own or owned_by_store(manifest.control_url)
        self._filters = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [manifest.cluster]}]
        self._buckets = [url for url in (manifest.control_url, manifest.data_url) if url.startswith("s3://")]

    def remaining(self) -> list[RemainingResource]:
        """See `Site`."""
        try:
            capacity = [*self._fleets(), *self._groups()]
            resources = [*self._instances(capacity), *capacity, *self._volumes(), *self._endpoints()]
            return [*resources, *self._gateways(), *self._addresses(), *self._retained_buckets()]
        except (ClientError, BotoCoreError) as error:
            raise errors.to_cloud_error(error) from error

    def list_unbilled(self) -> list[RemainingResource]:
        """See `Site`. EC2 alone: launch templates, security groups, subnets and all else that it tags."""
        try:
            owners: dict[str, dict[str, str]] = {}
            keys = [STORE_TAG, LAUNCH_TAG, *(f"{beginning}*" for beginning in KARPENTER)]
            of_owners = [{"Name": "key", "Values": keys}]
            for tag in self._pages("describe_tags", "Tags", Filters=of_owners):
                owners.setdefault(tag["ResourceId"], {})[tag["Key"]] = tag["Value"]
            return [
                RemainingResource(kind=tag["ResourceType"], name=tag["ResourceId"], unmarked=own is None)
                for tag in self._pages("describe_tags", "Tags", Filters=self._filters)
                if tag["Key"] == CLUSTER_TAG
                and tag["ResourceType"] not in _BILLED
                and (own := self._is_own(owners.get(tag["ResourceId"], {}))) is not False
            ]
        except (ClientError, BotoCoreError) as error:
            raise errors.to_cloud_error(error) from error

    def list_other_services(self) -> list[RemainingResource]:
        """See `Site`. By the Resource Groups Tagging API, which knows no roles of IAM."""
        tag_filter = [{"Key": CLUSTER_TAG, "Values": [self._cluster]}]
        try:
            pages = (
                self._client("resourcegroupstaggingapi").get_paginator("get_resources").paginate(TagFilters=tag_filter)
            )
            mappings = [mapping for page in pages for mapping in page["ResourceTagMappingList"]]
        except (ClientError, BotoCoreError) as error:
            raise errors.to_cloud_error(error) from error
        own_buckets = {urlsplit(url).netloc for url in self._buckets}
        tagged = [
            replace(_parse_arn(mapping["ResourceARN"]), unmarked=own is None)
            for mapping in mappings
            if mapping["ResourceARN"].split(":")[2] not in ("ec2", "autoscaling")
            and (own := self._is_own(read_tags(mapping))) is not False
        ]
        return [resource for resource in tagged if resource.kind != "bucket" or resource.name not in own_buckets]

    def end(self, instances: Iterable[str]) -> None:
        """See `Site`."""
        try:
            capacity.terminate(self._ec2, instances)
        except (ClientError, BotoCoreError) as error:
            raise errors.to_cloud_error(error) from error

    def remove(self, resources: Iterable[RemainingResource]) -> None:
        """See `Site`."""
        selected = list(resources)
        self.end([item.name for item in selected if item.kind == INSTANCE])
        for resource in selected:
            try:
                self._remove(resource)
            except (ClientError, BotoCoreError) as error:
                if not errors.error_code(error).endswith(_GONE):
                    raise errors.to_cloud_error(error) from error

    def _remove(self, resource: RemainingResource) -> None:
        name = resource.name
        match resource.kind:
            case "fleet":
                _check(self._ec2.delete_fleets(FleetIds=[name], TerminateInstances=True), "UnsuccessfulFleetDeletions")
            case "Auto Scaling group":
                self._scaling.delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)
            case "volume":
                self._ec2.delete_volume(VolumeId=name)
            case "VPC endpoint":
                _check(self._ec2.delete_vpc_endpoints(VpcEndpointIds=[name]), "Unsuccessful")
            case "NAT gateway":
                self._ec2.delete_nat_gateway(NatGatewayId=name)
            case "address":
                self._ec2.release_address(AllocationId=name)
            case "launch-template":
                self._ec2.delete_launch_template(LaunchTemplateId=name)
            case "security-group":
                self._ec2.delete_security_group(GroupId=name)
            case "subnet":
                self._ec2.delete_subnet(SubnetId=name)
            case "vpc":
                self._ec2.delete_vpc(VpcId=name)
            case "queue":
                self._client("sqs").delete_queue(QueueUrl=resource.detail)
            case "alarm":
                self._client("cloudwatch").delete_alarms(AlarmNames=[name])
            case "rule":
                events = self._client("events")
                targets = [target["Id"] for target in events.list_targets_by_rule(Rule=name)["Targets"]]
                if targets:
                    events.remove_targets(Rule=name, Ids=targets)
                events.delete_rule(Name=name)

    def removal(self, resource: RemainingResource) -> str:
        """See `Site`."""
        command = "" if resource.unmarked else _REMOVALS.get(resource.kind)
        return (
            f"aws {command.format(name=resource.name, detail=resource.detail)} --region {self._region}"
            if command
            else ""
        )

    def _pages(self, call: str, name: str, **request: Any) -> Iterator[dict[str, Any]]:
        for page in self._ec2.get_paginator(call).paginate(**request):
            yield from page[name]

    def _owned(self, descriptions: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], bool]]:
        """Yield the resources that are not another cluster's of the same name, each with whether it is unmarked."""
        for description in descriptions:
            own = self._is_own(read_tags(description))
            if own is not False:
                yield description, own is None

    def _instances(self, capacity: Iterable[RemainingResource]) -> Iterator[RemainingResource]:
        """Yield the instances. One without a mark of its own bears that of its fleet or group in `capacity`."""
        marked = {item.name for item in capacity if not item.unmarked}
        alive = {"Name": "instance-state-name", "Values": list(ALIVE)}
        for reservation in self._pages("describe_instances", "Reservations", Filters=[*self._filters, alive]):
            for instance, unmarked in self._owned(reservation["Instances"]):
                tags, state = read_tags(instance), instance["State"]["Name"]
                where = instance["Placement"]["AvailabilityZone"]
                part_of = tags.get(FLEET_TAG) or tags.get(GROUP_TAG) or ""
                yield RemainingResource(
                    kind=INSTANCE,
                    name=instance["InstanceId"],
                    detail=f"{tags.get(ROLE_TAG, 'of no role')}, {instance['InstanceType']} in {where}, {state}",
                    launched=LAUNCH_TAG in tags,
                    ending=state == "shutting-down",
                    capacity=True,
                    part_of=part_of,
                    unmarked=unmarked and part_of not in marked,
                    role=tags.get(ROLE_TAG, ""),
                    instance_type="" if state in ("stopping", "stopped") else instance["InstanceType"],
                    zone=where,
                    market=Market.SPOT if instance.get("InstanceLifecycle") == "spot" else Market.ON_DEMAND,
                )

    def _fleets(self) -> Iterator[RemainingResource]:
        # DescribeFleets has no filter for tags, and leaves out fleets of type instant.
        states = [{"Name": "fleet-state", "Values": list(_FLEETS)}]
        for fleet, unmarked in self._owned(self._pages("describe_fleets", "Fleets", Filters=states)):
            if read_tags(fleet).get(CLUSTER_TAG) == self._cluster and fleet.get("Type") != "instant":
                size = fleet["TargetCapacitySpecification"]["TotalTargetCapacity"]
                state = fleet["FleetState"]
                yield RemainingResource(
                    kind="fleet",
                    name=fleet["FleetId"],
                    detail=f"target {size}, {state}",
                    ending=state.startswith("deleted"),
                    capacity=True,
                    unmarked=unmarked,
                )

    def _groups(self) -> Iterator[RemainingResource]:
        pages = self._scaling.get_paginator("describe_auto_scaling_groups").paginate(Filters=self._filters)
        for group, unmarked in self._owned(group for page in pages for group in page["AutoScalingGroups"]):
            yield RemainingResource(
                kind="Auto Scaling group",
                name=group["AutoScalingGroupName"],
                detail=group.get("Status", ""),
                ending="Status" in group,
                capacity=True,
                unmarked=unmarked,
            )

    def _volumes(self) -> Iterator[RemainingResource]:
        for volume, unmarked in self._owned(self._pages("describe_volumes", "Volumes", Filters=self._filters)):
            attached = volume.get("Attachments") or []
            yield RemainingResource(
                kind="volume",
                name=volume["VolumeId"],
                detail=f"{volume['Size']} GiB, {volume['State']}",
                usd_per_hour=float(volume["Size"] * fixed_prices.GP3_GIB.usd) / HOURS_A_MONTH,
                # Volumes go with their instances: the launch templates say so.
                ending=volume["State"] == "deleting" or bool(attached),
                unmarked=unmarked,
            )

    def _endpoints(self) -> Iterator[RemainingResource]:
        pages = self._pages("describe_vpc_endpoints", "VpcEndpoints", Filters=self._filters)
        for endpoint, unmarked in self._owned(pages):
            state = endpoint["State"].lower()
            if state != "deleted":
                yield RemainingResource(
                    kind="VPC endpoint",
                    name=endpoint["VpcEndpointId"],
                    detail=f"{endpoint['ServiceName']}, {state}",
                    ending=state == "deleting",
                    usd_per_hour=len(endpoint.get("SubnetIds") or ()) * float(fixed_prices.ENDPOINT.usd),
                    unmarked=unmarked,
                )

    def _gateways(self) -> Iterator[RemainingResource]:
        pages = self._pages("describe_nat_gateways", "NatGateways", Filter=self._filters)
        for gateway, unmarked in self._owned(pages):
            state = gateway["State"]
            if state not in ("deleted", "failed"):
                yield RemainingResource(
                    kind="NAT gateway",
                    name=gateway["NatGatewayId"],
                    detail=state,
                    ending=state == "deleting",
                    usd_per_hour=float(fixed_prices.NAT.usd),
                    unmarked=unmarked,
                )

    def _addresses(self) -> Iterator[RemainingResource]:
        for address, unmarked in self._owned(self._ec2.describe_addresses(Filters=self._filters)["Addresses"]):
            yield RemainingResource(
                kind="address",
                name=address["AllocationId"],
                detail=address["PublicIp"],
                usd_per_hour=float(fixed_prices.ADDRESS.usd),
                unmarked=unmarked,
            )

    def _retained_buckets(self) -> Iterator[RemainingResource]:
        for url in self._buckets:
            name = url.removeprefix("s3://").partition("?")[0].partition("/")[0]
            try:
                self._s3.head_bucket(Bucket=name)
            except ClientError as error:
                if errors.error_code(error) in ("404", "NoSuchBucket"):
                    continue
                raise
            yield RemainingResource(kind="bucket", name=name, retained=True)


def _parse_arn(arn: str) -> RemainingResource:
    """Parse an ARN. The detail of a queue is its URL, which SQS calls take."""
    _, partition, service, region, account, resource_part = arn.split(":", 5)
    kind, name = _SERVICES.get(service, service), re.split("[:/]", resource_part)[-1]
    detail = f"https://sqs.{region}.{dns_suffix(partition)}/{account}/{name}" if kind == "queue" else arn
    usd = _PRICES.get(kind)
    return RemainingResource(kind=kind, name=name, detail=detail, usd_per_hour=usd, by_hand=kind not in _REMOVED)


def _check(answer: Mapping[str, Any], failures: str) -> None:
    """Check the answer to a request that names its failures in a list (EC2 API Reference, DeleteFleets and
    DeleteVpcEndpoints).

    Raises:
        ClientError: the first failure.
    """
    for failure in answer.get(failures) or ():
        raise ClientError({"Error": failure["Error"]}, "Delete")
