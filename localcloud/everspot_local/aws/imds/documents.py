"""Stands in for what the metadata service knows of an instance: the documents by their paths.

It does not know what Everspot's programs do not ask for; that is absent (404), not invented.
"""

from typing import TYPE_CHECKING, Any

from everspot_local.aws.imds.credentials import RoleCredentials
from everspot_local.machines.lifecycle import action_document
from everspot_local.market.clock import stamp
from everspot_local.world import ACCOUNT, World

if TYPE_CHECKING:
    from everspot_local.aws.ec2.instances import LocalInstance

ROLE_PATH = "/latest/meta-data/iam/security-credentials"
TAGS_PATH = "/latest/meta-data/tags/instance"


def document(world: World, credentials: RoleCredentials, instance: "LocalInstance", path: str) -> Any:
    """The document at a path: text, or an object to be told as JSON; None where there is nothing."""
    plain = _plain(world, instance).get(path)
    if plain is not None:
        return plain
    if path.startswith((ROLE_PATH, "/latest/meta-data/iam/info")):
        return _role(credentials, instance, path)
    if path.startswith(TAGS_PATH) and instance.metadata_options.instance_metadata_tags == "enabled":
        tags = {t["key"]: t["value"] for t in instance.get_tags()}
        return "\n".join(sorted(tags)) if path == TAGS_PATH else tags.get(path.removeprefix(f"{TAGS_PATH}/"))
    if path == "/latest/user-data":
        return str(instance.user_data.decode()) if instance.user_data else None
    if path == "/latest/meta-data/spot/instance-action":
        return action_document(instance)
    if path == "/latest/meta-data/events/recommendations/rebalance":
        return None if instance.rebalance_at is None else {"noticeTime": stamp(instance.rebalance_at)}
    if path == "/latest/dynamic/instance-identity/document":
        return _identity(world, instance)
    return None


def _plain(world: World, instance: "LocalInstance") -> dict[str, str | None]:
    nic = instance.nics[0]
    return {
        f"/latest/meta-data/{name}": value
        for name, value in {
            "instance-id": instance.id,
            "instance-type": instance.instance_type,
            "instance-life-cycle": instance.market.value,
            "ami-id": instance.image_id,
            "local-ipv4": nic.private_ip_address,
            "local-hostname": instance.private_dns_name,
            "mac": nic.mac_address,
            "placement/availability-zone": instance.availability_zone,
            "placement/region": world.region,
            "services/domain": "amazonaws.com",
        }.items()
    }


def _role(credentials: RoleCredentials, instance: "LocalInstance", path: str) -> Any:
    name = credentials.role_name(instance)
    if name is None:
        return None
    if path == "/latest/meta-data/iam/info":
        found = credentials.of(instance)
        return {
            "Code": "Success",
            "LastUpdated": found["LastUpdated"] if found else "",
            "InstanceProfileArn": instance.profile_arn,
            "InstanceProfileId": "AIPALOCALCLOUD",
        }
    if path == ROLE_PATH:
        return name
    return credentials.of(instance) if path == f"{ROLE_PATH}/{name}" else None


def _identity(world: World, instance: "LocalInstance") -> dict[str, Any]:
    return {
        "accountId": ACCOUNT,
        "architecture": instance.architecture,
        "availabilityZone": instance.availability_zone,
        "imageId": instance.image_id,
        "instanceId": instance.id,
        "instanceType": instance.instance_type,
        "pendingTime": stamp(instance.launch_time),
        "privateIp": instance.nics[0].private_ip_address,
        "region": world.region,
        "version": "2017-09-30",
    }
