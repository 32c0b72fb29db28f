"""Stands in for the account's service-linked roles, as far as EC2 asks for them.

It does not create them by itself, as AWS would for a console user: whoever wants a fleet declares them first.
"""

from moto.core.exceptions import ServiceException
from moto.iam.models import SERVICE_NAME_CONVERSION, IAMBackend, Role, iam_backends

from everspot_local.aws.account import ACCOUNT

_create = IAMBackend.create_service_linked_role

# moto would call them AWSServiceRoleForec2fleet and AWSServiceRoleForspot.
NAMES = {"ec2fleet": "EC2Fleet", "spot": "EC2Spot", "spotfleet": "EC2SpotFleet"}


class RoleNameTaken(ServiceException):
    """A service-linked role may be created once per account."""

    code = "InvalidInput"
    message = "Service role name {name} has been taken in this account, please try a different suffix."


def service_linked_role_exists(name: str) -> bool:
    """Whether the account has a service-linked role of this name."""
    roles = iam_backends[ACCOUNT]["aws"].roles.values()
    return any(role.name == name and role.path.startswith("/aws-service-role/") for role in roles)


def create_service_linked_role(self: IAMBackend, service_name: str, description: str, suffix: str) -> Role:
    """moto's, with AWS's refusal of a second one."""
    prefix = service_name.split(".")[0]
    name = f"AWSServiceRoleFor{SERVICE_NAME_CONVERSION.get(prefix, prefix)}" + (f"_{suffix}" if suffix else "")
    if service_linked_role_exists(name):
        raise RoleNameTaken(name=name)
    return _create(self, service_name, description, suffix)
