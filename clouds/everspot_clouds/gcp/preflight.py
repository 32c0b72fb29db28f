"""Asks Google Cloud whether a deployer's credentials and the project suffice for a cluster, before anything of it
exists."""

from typing import TYPE_CHECKING

from everspot_core.clock import Clock
from everspot_core.cluster.checks import Check, Verdict
from everspot_core.cluster.preflight import ImageFacts, PreflightPlan, image_checks, permission_checks

from everspot_clouds.base import image_check
from everspot_clouds.gcp import deployers
from everspot_clouds.gcp.checks import (
    Guarded,
    checked_api,
    client_missing,
    credential_checks,
    job_token_checks,
    quota_checks,
)
from everspot_clouds.gcp.gpus import FAMILIES

if TYPE_CHECKING:
    from everspot_clouds.gcp.http_api import Api

PERMISSIONS = deployers.PREVIEW | deployers.DEPLOY
"""Everything that `pulumi preview`, `up`, `refresh` and `destroy` need for a cluster."""

_BATCH = 100
"""Permissions that one request may test (Resource Manager API, projects.testIamPermissions)."""


def deployer_checks(plan: PreflightPlan, clock: Clock) -> list[Check]:
    """Check credentials first, and the rest only if they work. Nothing is changed and nothing is launched."""
    if (checks := client_missing()) is not None:
        return checks
    manifest = plan.manifest

    def make_checks(api: "Api", guarded: Guarded) -> list[Check]:
        checks = guarded("credentials", "credentials", lambda: credential_checks(api))
        if checks[0].verdict is not Verdict.OK:
            return checks
        checks += guarded("permissions", "credentials", lambda: _permissions(api))
        checks += guarded("quota", "quota", lambda: quota_checks(api, manifest.region, manifest, plan.catalogue))
        if plan.job_role:
            checks += guarded("job tokens", "user", lambda: job_token_checks(api))
        return checks + guarded("image", "user", lambda: _image_checks(api, plan))

    return checked_api(manifest.account, clock, make_checks)


def _permissions(api: "Api") -> list[Check]:
    """Return the checks of every permission, by service."""
    grants: dict[str, bool | None] = {}
    permissions = sorted(PERMISSIONS)
    for start in range(0, len(permissions), _BATCH):
        batch = permissions[start : start + _BATCH]
        answer = api.post("resourcemanager", f"projects/{api.project}:testIamPermissions", {"permissions": batch})
        grants |= {permission: permission in (answer.get("permissions") or ()) for permission in batch}
    identity = api.identity() or f"the signed-in account in project {api.project}"
    return permission_checks(identity, grants, separator=".", how_to_ask="")


def _image_checks(api: "Api", plan: PreflightPlan) -> list[Check]:
    """Return the checks of the image."""
    from everspot_clouds.gcp.errors import ApiError

    path, kind = plan.image, "global/images/family" if plan.image_source else "global/images"
    if "/" not in path:
        path = f"projects/{api.project}/{kind}/{path}"
    try:
        image = api.get("compute", path)
    except ApiError as error:
        if not error.missing:
            raise
        return [image_check(f"{path} does not exist, or has no image that is not deprecated")]
    arch, gib = str(image.get("architecture") or "").lower(), image.get("diskSizeGb")
    facts = ImageFacts(str(image.get("name") or path), arch, None if gib is None else int(gib))
    return image_checks(facts, plan, FAMILIES)
