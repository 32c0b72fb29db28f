"""Questions to Google Cloud at preview. Each gives the answer, or one sentence with the failure and its fix."""

from collections.abc import Callable
from typing import Any

import pulumi
from pulumi_gcp import compute, organizations
from pulumi_gcp._utilities import get_invoke_opts_defaults

from everspot.preview_queries import Answer, InvokedProvider, reason

__all__ = ["Answer", "check_signed_in", "invoke", "list_zones", "read_place", "reason", "zones_now"]

CREDENTIALS = (
    "Google Cloud cannot be asked: credentials are missing or have expired, or the project or the region is not set. "
    "Log in (`gcloud auth application-default login`), and set gcp:project and gcp:region in the stack's file."
)

GOOGLE = InvokedProvider(
    "gcp",
    CREDENTIALS,
    (
        "could not find default credentials",
        "default credentials",
        "invalid_grant",
        "project: required field is not set",
    ),
)
"""Phrases of the errors of the provider and of google-auth when nobody is signed in."""


def invoke(
    parent: pulumi.Resource, token: str, inputs: dict[str, Any], *, failed: str | Callable[[Exception], Any]
) -> pulumi.Output[Any]:
    """See `InvokedProvider.invoke`. `parent`: the resource whose provider is asked."""
    options = pulumi.InvokeOptions.merge(get_invoke_opts_defaults(), pulumi.InvokeOptions(parent=parent))
    return GOOGLE.invoke(options, token, inputs, failed=failed)


def check_signed_in() -> None:
    """Check that the credentials work and that project and region are set, before anything else is asked or declared.

    Raises:
        pulumi.RunError: with one sentence, if one of these fails.
    """
    try:
        configured = organizations.get_client_config()
    except Exception as error:
        raise pulumi.RunError(f"{CREDENTIALS}\n  ({reason(error)})") from None
    missing = [f"gcp:{name}" for name in ("project", "region") if not getattr(configured, name)]
    if missing:
        raise pulumi.RunError(f"{CREDENTIALS}\n  ({' and '.join(missing)} is not set)")


def zones_now(parent: pulumi.Resource | None = None) -> tuple[str, list[str]] | None:
    """Return the region and its zones that are up, asked without waiting for outputs. None if Google does not answer or
    no engine runs.

    `parent`: the resource whose provider is asked. Default: the default provider.
    """
    options = pulumi.InvokeOptions(parent=parent)
    try:
        region = organizations.get_client_config(opts=options).region
        return region, list(compute.get_zones(region=region, status="UP", opts=options).names)
    except Exception:  # problems that were found already are reported in any case
        return None


def read_place(parent: pulumi.Resource) -> pulumi.Output[dict[str, str]]:
    """Return the project and the region of a component's provider, by these names."""
    # The answer contains an access token, a secret; project and region are not secret.
    configured = pulumi.Output.unsecret(
        invoke(parent, "organizations/getClientConfig:getClientConfig", {}, failed=CREDENTIALS)
    )
    return configured.apply(lambda answer: {"project": str(answer["project"]), "region": str(answer["region"])})


def read_project_number(parent: pulumi.Resource) -> pulumi.Output[str]:
    """Return the number of a component's project."""
    message = "The project's number cannot be read (resourcemanager.projects.get)."
    return invoke(parent, "organizations/getProject:getProject", {}, failed=message).apply(
        lambda found: str(found["number"])
    )


def list_zones(parent: pulumi.Resource, region: pulumi.Input[str]) -> pulumi.Output[list[str]]:
    """Return the zones of a region that are up."""
    message = "zones: the region's zones cannot be listed (compute.zones.list)."
    listed = invoke(parent, "compute/getZones:getZones", {"region": region, "status": "UP"}, failed=message)
    return listed.apply(lambda answer: [str(name) for name in answer["names"]])
