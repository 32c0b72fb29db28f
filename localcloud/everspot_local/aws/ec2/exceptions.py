"""EC2's errors that moto lacks, by their real codes."""

from moto.ec2.exceptions import EC2ClientError

__all__ = ["EC2ClientError"]


class InsufficientInstanceCapacity(EC2ClientError):
    """A pool has no capacity left."""

    def __init__(self, instance_type: str, zone: str) -> None:
        super().__init__("InsufficientInstanceCapacity", drought_text(instance_type, zone))


class Unsupported(EC2ClientError):
    """A combination that EC2 does not offer, such as a type in a zone that lacks it."""

    def __init__(self, message: str) -> None:
        super().__init__("Unsupported", message)


class UnsupportedHere(EC2ClientError):
    """Something that the real EC2 can do and the local cloud cannot."""

    def __init__(self, feature: str) -> None:
        super().__init__("UnsupportedOperation", f"The local cloud does not support {feature}.")


class InvalidParameter(EC2ClientError):
    """A value that EC2 refuses."""

    def __init__(self, message: str) -> None:
        super().__init__("InvalidParameterValue", message)


class MissingParameter(EC2ClientError):
    """A value that EC2 needs."""

    def __init__(self, name: str) -> None:
        super().__init__("MissingParameter", f"The request must contain the parameter {name}")


class InvalidFleetConfig(EC2ClientError):
    """Settings of a fleet that do not go together."""

    def __init__(self, message: str) -> None:
        super().__init__("InvalidFleetConfig", message)


class InvalidTargetCapacity(EC2ClientError):
    """Target capacities that contradict each other, or may not be changed."""

    def __init__(self, message: str) -> None:
        super().__init__("InvalidTargetCapacitySpecification", message)


class FleetNotFound(EC2ClientError):
    """No fleet has this id."""

    def __init__(self, fleet_id: str) -> None:
        super().__init__("InvalidFleetId.NotFound", f"The fleet ID '{fleet_id}' does not exist")


class UnknownInstanceType(EC2ClientError):
    """No instance type has this name, or the local cloud knows no price for it."""

    def __init__(self, name: str) -> None:
        super().__init__("InvalidInstanceType", f"The following supplied instance types do not exist: [{name}]")


class ServiceLinkedRoleMissing(EC2ClientError):
    """The account lacks a service-linked role, and the service may not create it. EC2 answers with status 403, which
    moto's errors cannot express.

    The words as met, of Spot: https://github.com/determined-ai/determined/issues/1830.
    """

    def __init__(self, service: str) -> None:
        super().__init__(
            "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
            f"The provided credentials do not have permission to create the service-linked role for {service}.",
        )


def drought_text(instance_type: str, zone: str) -> str:
    """Return EC2's message for a pool without capacity."""
    return (
        f"We currently do not have sufficient {instance_type} capacity in the Availability Zone you requested "
        f"({zone}). Our system will be working on provisioning additional capacity."
    )
