"""The key that encrypts the instances' volumes, the account's default key for EBS. Previews check it."""

from typing import Any

import pulumi

from everspot.aws import preview_queries

OF_AWS = "alias/aws/ebs"
"""The answer of EC2 if no key was chosen (AWS CLI Command Reference, `get-ebs-default-kms-key-id`). Once a key was
chosen, it answers an ARN, also for the key that AWS manages."""


def warn_of_customer_key(parent: pulumi.Resource) -> None:
    """At preview, warn if the account's default key is a customer-managed key: EC2 Fleet, Spot and Auto Scaling need a
    grant on it to start an instance (Amazon EC2 User Guide, "Spot Instance requests", on the key's grant)."""
    if not pulumi.runtime.is_dry_run():
        return

    def unknown(error: Exception) -> None:
        message = "Which key encrypts volumes is not checked, since EC2 did not say (ec2:GetEbsDefaultKmsKeyId)"
        pulumi.log.warn(f"{message}: {preview_queries.reason(error)}", parent)

    default = preview_queries.invoke(parent, "ebs/getDefaultKmsKey:getDefaultKmsKey", {}, failed=unknown)
    default.apply(lambda found: found and _look_at(parent, str(found["keyArn"])))


def _look_at(parent: pulumi.Resource, key: str) -> pulumi.Output[Any] | None:
    if key == OF_AWS:
        return None
    # Warn also if the key may not be seen: AWS's own key may be seen by everybody in the account.
    answer = preview_queries.invoke(
        parent, "kms/getKey:getKey", {"keyId": key}, failed=lambda _: {"keyManager": "CUSTOMER"}
    )
    return answer.apply(lambda found: _warn(parent, key) if found["keyManager"] == "CUSTOMER" else None)


def _warn(parent: pulumi.Resource, key: str) -> None:
    pulumi.log.warn(
        f"The account's default key for EBS is the customer key {key}: the service-linked roles of EC2 Fleet, Spot and "
        "Auto Scaling need a grant on it, or no instance starts. The account stack makes it, with this key among its "
        "volumeKeyArns; for elastic capacity, the cluster's volumeKeyArns have to name it, too.",
        parent,
    )
