"""Questions to AWS at preview. Each gives the answer, or one sentence with the failure and its fix."""

from collections.abc import Callable
from typing import Any

import pulumi
from pulumi_aws import get_availability_zones, get_caller_identity, get_region
from pulumi_aws._utilities import get_invoke_opts_defaults

from everspot.preview_queries import Answer, InvokedProvider, reason

__all__ = ["Answer", "check_signed_in", "invoke", "read_region", "reason", "service_name", "zones_now"]

CREDENTIALS = (
    "AWS cannot be asked: credentials or the region are missing, or the credentials have expired. Log in "
    "(`aws sso login`) or set AWS_PROFILE, and set aws:region in the stack's file."
)

AWS = InvokedProvider(
    "aws", CREDENTIALS, ("No valid credential sources", "ExpiredToken", "InvalidClientTokenId", "SSO session")
)


def invoke(
    parent: pulumi.Resource, token: str, inputs: dict[str, Any], *, failed: str | Callable[[Exception], Any]
) -> pulumi.Output[Any]:
    """See `InvokedProvider.invoke`. `parent`: the resource whose provider is asked."""
    options = pulumi.InvokeOptions.merge(get_invoke_opts_defaults(), pulumi.InvokeOptions(parent=parent))
    return AWS.invoke(options, token, inputs, failed=failed)


def check_signed_in() -> None:
    """Check that the credentials work, before anything else is asked or declared.

    Raises:
        pulumi.RunError: with one sentence, if AWS does not answer.
    """
    try:
        get_caller_identity()
    except Exception as error:
        raise pulumi.RunError(f"{CREDENTIALS}\n  ({reason(error)})") from None


def zones_now(parent: pulumi.Resource | None = None) -> tuple[str, list[str]] | None:
    """Return the region and its available zones, asked without waiting for outputs. None if AWS does not answer or no
    engine runs.

    `parent`: the resource whose provider is asked. Default: the default provider.
    """
    options = pulumi.InvokeOptions(parent=parent)
    try:
        region = get_region(opts=options).region
        return region, list(get_availability_zones(state="available", opts=options).names)
    except Exception:  # problems that were found already are reported in any case
        return None


def read_region(parent: pulumi.Resource) -> pulumi.Output[str]:
    """Return the region of a component's provider."""
    return invoke(parent, "index/getRegion:getRegion", {}, failed=CREDENTIALS).apply(lambda found: str(found["region"]))


def service_name(region: pulumi.Output[str], service: str) -> pulumi.Output[str]:
    """Return the name of an AWS service in VPC endpoints."""
    return pulumi.Output.concat("com.amazonaws.", region, ".", service)
