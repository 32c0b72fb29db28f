"""What exists once in an AWS account, for all its clusters."""

from typing import NotRequired, TypedDict

import pulumi
from everspot_core.problems import Problems
from pulumi_aws import iam

from everspot import common


class AccountSetupArgs(TypedDict):
    """Inputs of `AccountSetup`."""

    tags: dict[str, str]
    """Tags of both roles; Project, Team and Environment are mandatory."""
    fleet_role: NotRequired[bool]
    """False where the account has AWSServiceRoleForEC2Fleet already: creating it twice fails. Default: true."""
    spot_role: NotRequired[bool]
    """False where the account has AWSServiceRoleForEC2Spot already. Default: true."""


class AccountSetup(pulumi.ComponentResource):
    """The service-linked roles that EC2 Fleet and EC2 Spot need, once per account.

    EC2 refuses a fleet of type maintain without the first, and Spot instances without the second. They belong in a
    stack of their own, apart from the clusters.
    """

    fleet_role_name: pulumi.Output[str]
    """Name of EC2 Fleet's service-linked role."""
    spot_role_name: pulumi.Output[str]
    """Name of EC2 Spot's service-linked role."""

    def __init__(self, name: str, args: AccountSetupArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("AccountSetup"), name, {}, opts)
        problems = Problems()
        common.check_tags(problems, args["tags"])
        common.raise_bad(problems, f"AccountSetup {name}")
        self.fleet_role_name = self._role(
            f"{name}-ec2-fleet",
            "ec2fleet.amazonaws.com",
            "AWSServiceRoleForEC2Fleet",
            args,
            args.get("fleet_role", True),
        )
        self.spot_role_name = self._role(
            f"{name}-ec2-spot", "spot.amazonaws.com", "AWSServiceRoleForEC2Spot", args, args.get("spot_role", True)
        )
        self.register_outputs({"fleetRoleName": self.fleet_role_name, "spotRoleName": self.spot_role_name})

    def _role(
        self, name: str, service: str, role_name: str, args: AccountSetupArgs, create: bool
    ) -> pulumi.Output[str]:
        if not create:
            return pulumi.Output.from_input(role_name)
        role = iam.ServiceLinkedRole(
            name, aws_service_name=service, tags=args["tags"], opts=pulumi.ResourceOptions(parent=self)
        )
        return role.name
