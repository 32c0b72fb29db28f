"""Holds networks to EC2's rules: descriptions of security groups, groups in use, endpoint services and private DNS."""

import re
from collections.abc import Iterator
from typing import Any

from moto.ec2.exceptions import DependencyViolationError, EC2ClientError
from moto.ec2.models.security_groups import SecurityGroupRule

CHARACTERS = r"a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*"
_DESCRIPTION = re.compile(r"[a-zA-Z0-9. _\-:/()#,@\[\]+=&;{}!$*]{0,255}")
_GROUPS = ("IpRanges", "Ipv6Ranges", "UserIdGroupPairs", "PrefixListIds")


class LocalRule(SecurityGroupRule):
    """A security group's rule with a description for every kind of source: moto keeps that of addresses only."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        described_parts = [part for part in (*args, *kwargs.values()) if isinstance(part, dict)]
        self._described = next((part["Description"] for part in described_parts if part.get("Description")), None)

    @property
    def description(self) -> str | None:
        """Return the rule's description."""
        return self.ip_range.get("Description") or self._described


def check_group(params: dict[str, Any]) -> None:
    """Check the arguments of CreateSecurityGroup."""
    described = str(params.get("Description") or "")
    if not described.isascii():
        raise EC2ClientError(
            "InvalidParameterValue",
            f"Value ({described}) for parameter GroupDescription is invalid. Character sets beyond ASCII are not "
            "supported.",
        )
    for field_name, text in (("description", described), ("name", str(params.get("GroupName") or ""))):
        _check_text(f"security group {field_name}", text)
    if str(params.get("GroupName") or "").startswith("sg-"):
        raise EC2ClientError(
            "InvalidParameterValue", "Invalid security group name. Names may not be in the format sg-*."
        )


def check_rules(params: dict[str, Any]) -> None:
    """Check the descriptions in the Authorize… and Update…Descriptions actions."""
    for permission in params.get("IpPermissions") or []:
        for kind in _GROUPS:
            for entry in permission.get(kind) or []:
                _check_text("rule description", str(entry.get("Description") or ""))


def _check_text(field_name: str, text: str) -> None:
    if not _DESCRIPTION.fullmatch(text):
        raise EC2ClientError(
            "InvalidParameterValue",
            f"Invalid {field_name}. Valid {field_name.split()[-1]}s are strings less than 256 characters from the "
            f"following set:  {CHARACTERS}",
        )


def check_group_deletion(backend: Any, group_id: str) -> None:
    """Refuse to delete a security group that an interface, an endpoint or another group's rule still uses."""
    group = backend.get_security_group_from_id(group_id)
    if group is None:
        return
    if group.is_default:
        raise EC2ClientError(
            "CannotDelete", f'the specified group: "{group_id}" name: "default" cannot be deleted by a user'
        )
    if any(_users(backend, group_id)):
        raise DependencyViolationError(f"resource {group_id} has a dependent object")


def _users(backend: Any, group_id: str) -> Iterator[bool]:
    for interface in backend.enis.values():
        yield any(group.id == group_id for group in interface.group_set)
    for endpoint in backend.vpc_end_points.values():
        yield endpoint.state != "deleted" and group_id in (endpoint.security_group_ids or [])
    for groups in backend.groups.values():
        for other in groups.values():
            if other.id != group_id:
                rules = [*other.ingress_rules, *other.egress_rules]
                yield any(rule.source_group.get("GroupId") == group_id for rule in rules)


def check_endpoint(backend: Any, params: dict[str, Any]) -> None:
    """Refuse an endpoint of an unknown service, and a second one with the same private DNS name in a VPC."""
    service, vpc_id = str(params.get("ServiceName") or ""), str(params.get("VpcId") or "")
    offered = backend._collect_default_endpoint_services(backend.account_id, backend.region_name)
    service_names = {each["ServiceName"] for each in offered}
    service_names |= {configuration.service_name for configuration in backend.configurations.values()}
    if service not in service_names:
        raise EC2ClientError("InvalidServiceName", f"The Vpc Endpoint Service '{service}' does not exist")
    if params.get("VpcEndpointType") != "Interface" or params.get("PrivateDnsEnabled") in (False, "false"):
        return
    for other in backend.vpc_end_points.values():
        same = (other.vpc_id, other.service_name, other.vpc_endpoint_type) == (vpc_id, service, "Interface")
        if same and other.private_dns_enabled and other.state == "available":
            name = f"{service.rpartition('.')[2]}.{backend.region_name}.amazonaws.com"
            raise EC2ClientError(
                "InvalidParameter",
                f"private-dns-enabled cannot be set because there is already a conflicting DNS domain for {name} in "
                f"the VPC {vpc_id}",
            )
