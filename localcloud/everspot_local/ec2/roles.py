"""Stands in for the account's service-linked roles, as far as EC2 asks for them.

It does not create them by itself, as AWS would for a console user: whoever wants a fleet declares them first.
"""

from moto.core.exceptions import ServiceException
from moto.iam import models as iam
from moto.iam.models import Role, iam_backends

from everspot_local.world import ACCOUNT

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


def teach_moto() -> None:
    """Give moto's IAM the real names of EC2's service-linked roles, and the real refusal of a second one."""
    iam.SERVICE_NAME_CONVERSION.update(NAMES)
    original = iam.IAMBackend.create_service_linked_role
    if getattr(original, "__module__", "") == __name__:
        return

    def create_service_linked_role(self: iam.IAMBackend, service_name: str, description: str, suffix: str) -> Role:
        prefix = service_name.split(".")[0]
        name = f"AWSServiceRoleFor{iam.SERVICE_NAME_CONVERSION.get(prefix, prefix)}" + (f"_{suffix}" if suffix else "")
        if service_linked_role_exists(name):
            raise RoleNameTaken(name=name)
        return original(self, service_name, description, suffix)

    iam.IAMBackend.create_service_linked_role = create_service_linked_role  # type: ignore[method-assign]
