"""Stands in for the account's service-linked roles, as far as EC2 asks for them.

EC2 Fleet needs its role for fleets of the types `request` and `maintain`, and every Spot instance needs Spot's, however
it is launched (EC2 User Guide, "EC2 Fleet prerequisites" and "Service-linked role for Spot Instances": who uses the API
"must ensure that these roles exist"). An `instant` fleet says so of the override: as met, with the whole answer, in
https://github.com/aws/karpenter-provider-aws/pull/7998. EC2 may create a role that is missing in the name of a caller
with iam:CreateServiceLinkedRole; this one never does: users of fleets or Spot instances declare the roles first.
"""

from moto.core.exceptions import ServiceException
from moto.iam.models import SERVICE_NAME_CONVERSION, IAMBackend, Role, iam_backends

from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.ec2.exceptions import ServiceLinkedRoleMissing

_create = IAMBackend.create_service_linked_role

# moto would call them AWSServiceRoleForec2fleet and AWSServiceRoleForspot.
NAMES = {"ec2fleet": "EC2Fleet", "spot": "EC2Spot", "spotfleet": "EC2SpotFleet"}


class RoleNameTaken(ServiceException):
    """The account has this service-linked role already; it can be created only once."""

    code = "InvalidInput"
    message = "Service role name {name} has been taken in this account, please try a different suffix."


def need_fleet_role() -> None:
    """Refuse a fleet of type `request` or `maintain` in an account without the role of EC2 Fleet.

    Raises:
        ServiceLinkedRoleMissing: if the account has no role of EC2 Fleet.
    """
    if not service_linked_role_exists("AWSServiceRoleForEC2Fleet"):
        raise ServiceLinkedRoleMissing("EC2 Fleet")


def need_spot_role() -> None:
    """Refuse Spot instances in an account without the role of EC2 Spot.

    Raises:
        ServiceLinkedRoleMissing: if the account has no role of EC2 Spot.
    """
    if not service_linked_role_exists("AWSServiceRoleForEC2Spot"):
        raise ServiceLinkedRoleMissing("EC2 Spot Instances")


def service_linked_role_exists(name: str) -> bool:
    """Return whether the account has a service-linked role of this name."""
    roles = iam_backends[ACCOUNT]["aws"].roles.values()
    return any(role.name == name and role.path.startswith("/aws-service-role/") for role in roles)


def create_service_linked_role(self: IAMBackend, service_name: str, description: str, suffix: str) -> Role:
    """Create a service-linked role as moto does, and refuse a second one as AWS does."""
    prefix = service_name.split(".")[0]
    name = f"AWSServiceRoleFor{SERVICE_NAME_CONVERSION.get(prefix, prefix)}" + (f"_{suffix}" if suffix else "")
    if service_linked_role_exists(name):
        raise RoleNameTaken(name=name)
    return _create(self, service_name, description, suffix)
