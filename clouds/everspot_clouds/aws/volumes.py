"""Tags the volumes of Spot instances, because EC2 and its launch templates do not.

A launch template tags the volumes of what it launches, but not those of the Spot instances of a fleet of type maintain
(EC2 User Guide, "Tag a new or existing EC2 Fleet request and the instances and volumes it launches": "For request or
maintain fleet types, you can only tag volumes that are attached to On-Demand Instances"). The scheduler therefore gives
them the tags of their instance when it first sees the instance.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

log = logging.getLogger(__name__)

AT_ONCE = 500
"""Resources in one CreateTags; EC2 takes 1,000."""

_Tags = tuple[tuple[str, str], ...]


class VolumeTags:
    """Tags each volume once. After a restart it tags all of them again, which changes nothing."""

    def __init__(self, ec2: Any) -> None:
        self._ec2 = ec2
        self._done: set[str] = set()
        self._refused: str | None = None

    def look(self, instances: Iterable[dict[str, Any]]) -> None:
        """Tag the volumes of new instances, given in the form of DescribeInstances. A failure is retried at the next
        call, because no job should wait for tags."""
        living: set[str] = set()
        untagged: dict[_Tags, list[str]] = defaultdict(list)
        for raw in instances:
            if raw.get("InstanceLifecycle") != "spot" or raw["State"]["Name"] not in ("pending", "running"):
                continue
            tags = tuple(sorted((t["Key"], t["Value"]) for t in raw.get("Tags", []) if not t["Key"].startswith("aws:")))
            volumes = [
                m["Ebs"]["VolumeId"] for m in raw.get("BlockDeviceMappings", []) if "VolumeId" in m.get("Ebs", {})
            ]
            living.update(volumes)
            untagged[tags] += [volume for volume in volumes if volume not in self._done]
        self._done &= living
        for tags, volumes in untagged.items():
            for begin in range(0, len(volumes), AT_ONCE):
                self._tag(volumes[begin : begin + AT_ONCE], tags)

    def _tag(self, volumes: list[str], tags: _Tags) -> None:
        try:
            self._ec2.create_tags(Resources=volumes, Tags=[{"Key": key, "Value": value} for key, value in tags])
        except (ClientError, BotoCoreError) as error:
            missing = isinstance(error, ClientError) and error.response["Error"]["Code"] == "InvalidVolume.NotFound"
            if missing and len(volumes) > 1:  # one that is gone fails the whole call
                for volume in volumes:
                    self._tag([volume], tags)
                return
            if missing:
                return
            if str(error) != self._refused:  # once, and not at every look
                log.warning("volumes %s cannot be tagged: %s", ", ".join(volumes), error)
            self._refused = str(error)
            return
        self._done.update(volumes)
        self._refused = None
