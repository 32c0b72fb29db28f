"""The resources that an AWS account has once, for all its clusters."""

from typing import NotRequired, TypedDict

import pulumi
from everspot_clouds.aws.rules import FLEET_ROLE, SCALING_ROLE, SPOT_ROLE
from everspot_core.validation.bounds import check_values
from everspot_core.validation.problems import Problems
from pulumi_aws import iam, kms

from everspot import common
from everspot.aws import arns, tagging
from everspot.parts import outputs

GRANTED = (
    "Decrypt",
    "Encrypt",
    "GenerateDataKey",
    "GenerateDataKeyWithoutPlaintext",
    "CreateGrant",
    "DescribeKey",
    "ReEncryptFrom",
    "ReEncryptTo",
)
"""The key permissions that a service needs to start instances with encrypted volumes (Amazon EC2 User Guide, "EC2 Fleet
prerequisites", and Amazon EC2 Auto Scaling User Guide, "AWS KMS key policy for use with encrypted volumes")."""


class AwsAccountSetupArgs(TypedDict):
    """Inputs of `AwsAccountSetup`."""

    tags: dict[str, str]
    """Tags of the roles that are made; Project, Team and Environment are mandatory."""
    fleet_role: NotRequired[bool]
    """Whether this stack makes the role AWSServiceRoleForEC2Fleet, or takes it over if it exists. Default: true."""
    spot_role: NotRequired[bool]
    """Whether this stack makes the role AWSServiceRoleForEC2Spot, or takes it over if it exists. Default: true."""
    volume_key_arns: NotRequired[list[str]]
    """ARNs of the customer-managed KMS keys that encrypt volumes: the account's default key for EBS, or the image's
    key. EC2 Fleet, Spot and Auto Scaling get a grant on each. Default: none."""


class AwsAccountSetup(pulumi.ComponentResource):
    """The service-linked roles that EC2 Fleet and EC2 Spot need, once per account, and their grants on volumes' keys.

    EC2 refuses a fleet of type maintain without the first role, and Spot instances without the second. Put this
    component into a stack of its own, apart from the clusters. It takes over roles that exist and keeps their tags.
    `pulumi destroy` deletes none of the roles, because others may use them.
    """

    fleet_role_name: pulumi.Output[str]
    """Name of EC2 Fleet's service-linked role."""
    spot_role_name: pulumi.Output[str]
    """Name of EC2 Spot's service-linked role."""

    def __init__(self, name: str, args: AwsAccountSetupArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("AwsAccountSetup"), name, {}, opts)
        keys = args.get("volume_key_arns", [])
        problems = Problems()
        account_problems(problems, args)
        common.raise_bad(problems, f"AwsAccountSetup {name}")
        self._tags = args["tags"]
        fleet = self._role(f"{name}-ec2-fleet", FLEET_ROLE) if args.get("fleet_role", True) else None
        spot = self._role(f"{name}-ec2-spot", SPOT_ROLE) if args.get("spot_role", True) else None
        self.fleet_role_name = fleet.name if fleet else pulumi.Output.from_input(FLEET_ROLE[1])
        self.spot_role_name = spot.name if spot else pulumi.Output.from_input(SPOT_ROLE[1])
        if keys:
            scaling = self._role(f"{name}-auto-scaling", SCALING_ROLE)
            for suffix, role in (("ec2-fleet", fleet), ("ec2-spot", spot), ("auto-scaling", scaling)):
                self._grants(f"{name}-{suffix}", role, keys)
        self.register_outputs(outputs(self))

    def _role(self, name: str, role: tuple[str, str]) -> iam.ServiceLinkedRole:
        service, role_name = role
        existing = self._existing(role_name)
        return iam.ServiceLinkedRole(
            name,
            aws_service_name=service,
            tags=self._tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                # Of a role that this stack has made itself the engine knows that there is nothing to import.
                import_=existing,
                ignore_changes=["tags", "description"] if existing else None,
                retain_on_delete=True,
            ),
        )

    def _existing(self, role_name: str) -> str | None:
        """Return the ARN of a role. None if it does not exist, or if it may not be read: then an attempt to make it
        shows whether it exists."""
        try:
            return iam.get_role(name=role_name, opts=pulumi.InvokeOptions(parent=self)).arn
        except Exception:
            return None

    def _grants(self, name: str, role: iam.ServiceLinkedRole | None, keys: list[str]) -> None:
        if role is None:
            return
        for index, key in enumerate(keys):
            kms.Grant(
                f"{name}-key-{index}",
                key_id=key,
                grantee_principal=role.arn,
                operations=list(GRANTED),
                opts=pulumi.ResourceOptions(parent=self),
            )


def account_problems(problems: Problems, args: AwsAccountSetupArgs) -> None:
    """Add a problem for each mistake in the inputs of an account's set-up."""
    tagging.check_tags(problems, args["tags"])
    arns.check_arns(problems, "volumeKeyArns", args.get("volume_key_arns", []), "kms", "key/")
    check_values(problems, args)
