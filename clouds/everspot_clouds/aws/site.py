"""The resources of a cluster in AWS that cost money, found by its tag, for `everspot down`."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from everspot_core.manifest import Manifest

from everspot_clouds.aws import capacity, errors
from everspot_clouds.aws.rules import CLUSTER_TAG, LAUNCH_TAG, ROLE_TAG
from everspot_clouds.base import Left

ALIVE = ("pending", "running", "stopping", "stopped", "shutting-down")
"""States of instances that have not ended. An instance that is shutting down is about to end."""
_FLEETS = ("submitted", "active", "modifying", "deleted_running", "deleted_terminating")
_CONFIG = Config(connect_timeout=5, read_timeout=15, retries={"mode": "standard", "total_max_attempts": 4})


class AwsSite:
    """The `Site` of a cluster in AWS, with the user's credentials."""

    def __init__(self, manifest: Manifest) -> None:
        """Clients for the manifest's region.

        Raises:
            CloudError: if this machine's settings do not allow it, for example a profile that does not exist.
        """
        try:
            session = boto3.Session(region_name=manifest.region or os.environ.get("AWS_REGION"))
            self._ec2, self._scaling, self._s3 = (
                session.client(service, config=_CONFIG) for service in ("ec2", "autoscaling", "s3")
            )
        except BotoCoreError as error:
            raise errors.told(error) from error
        self._cluster = manifest.cluster
        self._mine = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [manifest.cluster]}]
        self._buckets = [url for url in (manifest.control_url, manifest.data_url) if url.startswith("s3://")]

    def left(self) -> list[Left]:
        """See `Site`."""
        try:
            found = [*self._instances(), *self._fleets(), *self._groups(), *self._volumes(), *self._endpoints()]
            return [*found, *self._kept()]
        except (ClientError, BotoCoreError) as error:
            raise errors.told(error) from error

    def end(self, instances: Iterable[str]) -> None:
        """See `Site`."""
        try:
            capacity.terminate(self._ec2, instances)
        except (ClientError, BotoCoreError) as error:
            raise errors.told(error) from error

    def _pages(self, call: str, name: str, **request: Any) -> Iterator[dict[str, Any]]:
        for page in self._ec2.get_paginator(call).paginate(**request):
            yield from page[name]

    def _instances(self) -> Iterator[Left]:
        alive = {"Name": "instance-state-name", "Values": list(ALIVE)}
        for reservation in self._pages("describe_instances", "Reservations", Filters=[*self._mine, alive]):
            for one in reservation["Instances"]:
                tags, state = _tags(one), one["State"]["Name"]
                where = one["Placement"]["AvailabilityZone"]
                yield Left(
                    kind="instance",
                    name=one["InstanceId"],
                    detail=f"{tags.get(ROLE_TAG, 'of no role')}, {one['InstanceType']} in {where}, {state}",
                    launched=LAUNCH_TAG in tags,
                    ending=state == "shutting-down",
                )

    def _fleets(self) -> Iterator[Left]:
        # DescribeFleets has no filter for tags, and leaves out fleets of type instant.
        states = [{"Name": "fleet-state", "Values": list(_FLEETS)}]
        for fleet in self._pages("describe_fleets", "Fleets", Filters=states):
            if _tags(fleet).get(CLUSTER_TAG) == self._cluster and fleet.get("Type") != "instant":
                size = fleet["TargetCapacitySpecification"]["TotalTargetCapacity"]
                state = fleet["FleetState"]
                yield Left(
                    kind="fleet",
                    name=fleet["FleetId"],
                    detail=f"target {size}, {state}",
                    ending=state.startswith("deleted"),
                )

    def _groups(self) -> Iterator[Left]:
        pages = self._scaling.get_paginator("describe_auto_scaling_groups").paginate(Filters=self._mine)
        for group in (group for page in pages for group in page["AutoScalingGroups"]):
            yield Left(
                kind="Auto Scaling group",
                name=group["AutoScalingGroupName"],
                detail=group.get("Status", ""),
                ending="Status" in group,
            )

    def _volumes(self) -> Iterator[Left]:
        for volume in self._pages("describe_volumes", "Volumes", Filters=self._mine):
            attached = volume.get("Attachments") or []
            yield Left(
                kind="volume",
                name=volume["VolumeId"],
                detail=f"{volume['Size']} GiB, {volume['State']}",
                # Volumes go with their instances: the launch templates say so.
                ending=volume["State"] == "deleting" or bool(attached),
            )

    def _endpoints(self) -> Iterator[Left]:
        for endpoint in self._pages("describe_vpc_endpoints", "VpcEndpoints", Filters=self._mine):
            state = endpoint["State"].lower()
            if state != "deleted":
                yield Left(
                    kind="VPC endpoint",
                    name=endpoint["VpcEndpointId"],
                    detail=f"{endpoint['ServiceName']}, {state}",
                    ending=state == "deleting",
                )

    def _kept(self) -> Iterator[Left]:
        for url in self._buckets:
            name = url.removeprefix("s3://").partition("?")[0].partition("/")[0]
            try:
                self._s3.head_bucket(Bucket=name)
            except ClientError as error:
                if errors.code_of(error) in ("404", "NoSuchBucket"):
                    continue
                raise
            yield Left(kind="bucket", name=name, kept=True)


def _tags(thing: Mapping[str, Any]) -> dict[str, str]:
    tags: Sequence[Mapping[str, str]] = thing.get("Tags") or []
    return {tag["Key"]: tag.get("Value", "") for tag in tags}
