"""Questions to AWS at preview. Each gives the answer, or one sentence that says what failed and what to do about it.

The output forms of the SDK's functions (`get_vpc_output` and the like) are not used, because their failures always end
the program with a traceback and cannot be caught.
"""

from collections.abc import Callable
from typing import Any

import pulumi
from everspot_core.problems import cut
from pulumi_aws import get_availability_zones, get_caller_identity, get_region
from pulumi_aws._utilities import get_invoke_opts_defaults

Answer = dict[str, Any]

CREDENTIALS = (
    "AWS cannot be asked: credentials or the region are missing, or the credentials have expired. Log in "
    "(`aws sso login`) or set AWS_PROFILE, and set aws:region in the stack's file."
)

_SIGNED_OUT = ("No valid credential sources", "ExpiredToken", "InvalidClientTokenId", "SSO session")
"""How the provider and AWS say that nobody is signed in."""


def ask(
    parent: pulumi.Resource,
    token: str,
    inputs: dict[str, Any],
    *,
    failed: str | Callable[[Exception], Any],
) -> pulumi.Output[Any]:
    """Call a function of the provider by its token, such as `ec2/getVpc:getVpc`. Inputs and answer are in camelCase.

    `failed`: the sentence with which the program ends on an error, or a function that gives a substitute answer.
    """
    options = pulumi.InvokeOptions.merge(get_invoke_opts_defaults(), pulumi.InvokeOptions(parent=parent))

    async def call(known: Answer) -> Any:
        try:
            return await pulumi.runtime.invoke_async(f"aws:{token}", known, options)
        except Exception as error:
            if callable(failed) and not _signed_out(error):
                return failed(error)
            told = CREDENTIALS if _signed_out(error) else failed
            raise pulumi.RunError(f"{told}\n  ({reason(error)})") from None

    return pulumi.Output.all(**inputs).apply(call)


def check_signed_in() -> None:
    """Check that the credentials work, before anything else is asked or declared.

    Raises:
        pulumi.RunError: with one sentence, if AWS does not answer that.
    """
    try:
        get_caller_identity()
    except Exception as error:
        raise pulumi.RunError(f"{CREDENTIALS}\n  ({reason(error)})") from None


def zones_now(parent: pulumi.Resource | None = None) -> tuple[str, list[str]] | None:
    """The region and its available zones, asked without waiting for outputs. None if AWS does not answer or no engine
    runs.

    `parent`: the resource whose provider is asked. Default: the default provider.
    """
    options = pulumi.InvokeOptions(parent=parent)
    try:
        region = get_region(opts=options).region
        return region, list(get_availability_zones(state="available", opts=options).names)
    except Exception:  # what was found already is told in any case
        return None


def _signed_out(error: Exception) -> bool:
    return any(word in str(error) for word in _SIGNED_OUT)


def region_of(parent: pulumi.Resource) -> pulumi.Output[str]:
    """The region of a component's provider."""
    return ask(parent, "index/getRegion:getRegion", {}, failed=CREDENTIALS).apply(lambda found: str(found["region"]))


def service_name(region: pulumi.Output[str], service: str) -> pulumi.Output[str]:
    """The name by which VPC endpoints know a service of AWS."""
    return pulumi.Output.concat("com.amazonaws.", region, ".", service)


def reason(error: Exception) -> str:
    """What AWS or the provider said, without what the engine and the SDK wrap around it."""
    text = " ".join(str(error).split())
    for before in ("returned an error: ", "failed: "):
        text = text.rpartition(before)[2] or text
    return cut(text, 400)
