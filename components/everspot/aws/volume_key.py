"""The key of the instances' volumes: the account's default one for EBS, looked at in previews."""

from typing import Any

import pulumi

from everspot.aws import asking

OF_AWS = "alias/aws/ebs"
"""What EC2 answers where nobody has chosen a key (AWS CLI Command Reference, `get-ebs-default-kms-key-id`). Afterwards
it answers a key's ARN, also of the one that AWS manages."""


def warn_of_customer_key(parent: pulumi.Resource) -> None:
    """At preview, say that the account's default key is a customer's: EC2 Fleet, Spot and Auto Scaling start no
    instance whose volume they may not open (Amazon EC2 User Guide, "Spot Instance requests", on the key's grant)."""
    if not pulumi.runtime.is_dry_run():
        return

    def unknown(error: Exception) -> None:
        told = "Which key encrypts volumes is not checked, since EC2 did not say (ec2:GetEbsDefaultKmsKeyId)"
        pulumi.log.warn(f"{told}: {asking.reason(error)}", parent)

    default = asking.ask(parent, "ebs/getDefaultKmsKey:getDefaultKmsKey", {}, failed=unknown)
    default.apply(lambda found: found and _look_at(parent, str(found["keyArn"])))


def _look_at(parent: pulumi.Resource, key: str) -> pulumi.Output[Any] | None:
    if key == OF_AWS:
        return None
    # Whoever may not see the key is told: of AWS's own one, everybody of the account may.
    known = asking.ask(parent, "kms/getKey:getKey", {"keyId": key}, failed=lambda _: {"keyManager": "CUSTOMER"})
    return known.apply(lambda found: _tell(parent, key) if found["keyManager"] == "CUSTOMER" else None)


def _tell(parent: pulumi.Resource, key: str) -> None:
    pulumi.log.warn(
        f"The account's default key for EBS is the customer key {key}: the service-linked roles of EC2 Fleet, Spot and "
        "Auto Scaling need a grant on it, or no instance starts. The account stack makes it, with this key among its "
        "volumeKeyArns.",
        parent,
    )
