"""Stands in for the contents of the metadata service: the documents of an instance by their paths.

It does not know what Everspot's programs do not ask for; that is absent (404), not invented.
"""

from typing import Any

from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.ec2.instances import LocalInstance
from everspot_local.aws.imds.credentials import RoleCredentials
from everspot_local.machines.lifecycle import Machines
from everspot_local.market.clock import stamp
from everspot_local.market.market import LocalMarket

ROLE_PATH = "/latest/meta-data/iam/security-credentials"
TAGS_PATH = "/latest/meta-data/tags/instance"
KEYS_PATH = "/latest/meta-data/public-keys"


class Documents:
    """The contents of all instances' metadata services."""

    def __init__(self, market: LocalMarket, machines: Machines) -> None:
        self._market = market
        self._machines = machines
        self.credentials = RoleCredentials(market.region)

    def forget(self) -> None:
        """Issue new credentials from now on."""
        self.credentials = RoleCredentials(self._market.region)

    def tokens(self, instance_id: str) -> str | None:
        """Return whether a token is `required` or `optional`; None if the instance has no service."""
        instance = self._instance(instance_id)
        if instance is None or instance.metadata_options.http_endpoint == "disabled":
            return None
        return str(instance.metadata_options.http_tokens)

    def document(self, instance_id: str, path: str) -> Any:
        """Return the document at a path: text, or an object to be told as JSON; None where there is nothing."""
        with self._market.lock:
            instance = self._instance(instance_id)
            return None if instance is None else self._document(instance, path)

    def _instance(self, instance_id: str) -> LocalInstance | None:
        machine = self._machines.all.get(instance_id)
        return machine.instance if machine and isinstance(machine.instance, LocalInstance) else None

    def _document(self, instance: LocalInstance, path: str) -> Any:
        plain = _plain(instance, self._market.region).get(path)
        if plain is not None:
            return plain
        if path.startswith((ROLE_PATH, "/latest/meta-data/iam/info")):
            return _role(self.credentials, instance, path)
        if path.startswith(TAGS_PATH) and instance.metadata_options.instance_metadata_tags == "enabled":
            tags = instance.labels()
            return "\n".join(sorted(tags)) if path == TAGS_PATH else tags.get(path.removeprefix(f"{TAGS_PATH}/"))
        if path.startswith(KEYS_PATH):
            return _public_key(instance, path)
        if path == "/latest/user-data":
            return str(instance.user_data.decode()) if instance.user_data else None
        if path == "/latest/meta-data/spot/instance-action":
            at = instance.machine.reclaim_at
            return None if at is None else {"action": "terminate", "time": stamp(at)}
        if path == "/latest/meta-data/events/recommendations/rebalance":
            at = instance.machine.rebalance_at
            return None if at is None else {"noticeTime": stamp(at)}
        if path == "/latest/dynamic/instance-identity/document":
            return _identity(instance, self._market.region)
        return None


def _plain(instance: LocalInstance, region: str) -> dict[str, str | None]:
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
            "placement/region": region,
            "services/domain": "amazonaws.com",
        }.items()
    }


def _public_key(instance: LocalInstance, path: str) -> str | None:
    """Return what the service has of the key pair of the launch (EC2 User Guide, "Instance metadata categories")."""
    pair = instance.ec2_backend.key_pairs.get(instance.key_name)
    if pair is None:
        return None
    key = f"{pair.material_public.decode().strip()} {pair.key_name}"
    paths = {"": f"0={pair.key_name}", "/0": "openssh-key", "/0/openssh-key": key}
    return paths.get(path.removeprefix(KEYS_PATH).rstrip("/"))


def _role(credentials: RoleCredentials, instance: LocalInstance, path: str) -> Any:
    name = credentials.role_name(instance)
    if name is None:
        return None
    if path == "/latest/meta-data/iam/info":
        credentials_document = credentials.role_credentials(instance)
        return {
            "Code": credentials_document["Code"] if credentials_document else "Success",
            "LastUpdated": credentials_document["LastUpdated"] if credentials_document else "",
            "InstanceProfileArn": instance.profile_arn,
            "InstanceProfileId": "AIPALOCALCLOUD",
        }
    if path == ROLE_PATH:
        return name
    return credentials.role_credentials(instance) if path == f"{ROLE_PATH}/{name}" else None


def _identity(instance: LocalInstance, region: str) -> dict[str, Any]:
    return {
        "accountId": ACCOUNT,
        "architecture": instance.architecture,
        "availabilityZone": instance.availability_zone,
        "imageId": instance.image_id,
        "instanceId": instance.id,
        "instanceType": instance.instance_type,
        "pendingTime": stamp(instance.launch_time),
        "privateIp": instance.nics[0].private_ip_address,
        "region": region,
        "version": "2017-09-30",
    }
