"""Stands in for getIamPolicy, setIamPolicy and testIamPermissions, which are the same in every product with
policies."""

from collections.abc import Callable, Mapping
from typing import Any

from everspot_local.gcp.callers import ApiCaller
from everspot_local.gcp.iam.policies import Policies
from everspot_local.gcp.refusals import bad
from everspot_local.gcp.router import Handler, Request

Document = dict[str, Any]
HasPermission = Callable[[ApiCaller, str, str], bool]
"""Whether a caller has a permission on a resource."""


def policy_routes(
    prefix: str, policies: Policies, has_permission: HasPermission, find: Callable[[str], str]
) -> Mapping[str, Handler]:
    """Return the three methods of one kind of resource.

    Args:
        prefix: of the methods' ids, such as `pubsub.projects.topics`.
        policies: where the policies lie.
        has_permission: who has what.
        find: the full name of a resource that is there, by what the path says; raises `ApiError` for one that is not.
    """

    def read(request: Request) -> Document:
        options = request.body.get("options") or {}
        version = request.params.get("options.requestedPolicyVersion", options.get("requestedPolicyVersion", 1))
        return policies.read(find(request.params["resource"]), int(version or 1))

    def write(request: Request) -> Document:
        if not isinstance(request.body.get("policy"), Mapping):
            raise bad("The policy is missing.")
        return policies.write(find(request.params["resource"]), request.body["policy"])

    def test(request: Request) -> Document:
        resource = find(request.params["resource"])
        permissions = request.body.get("permissions") or []
        if any("*" in permission for permission in permissions):
            raise bad("Permissions with wildcards are not allowed.")
        return {"permissions": [name for name in permissions if has_permission(request.caller, name, resource)]}

    return {f"{prefix}.getIamPolicy": read, f"{prefix}.setIamPolicy": write, f"{prefix}.testIamPermissions": test}
