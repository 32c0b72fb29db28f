"""Stands in for Cloud Billing as far as the provider reads it: which account pays for a project, and who may see that.

Budgets have their own API; the price list is in `price_list`.
"""

from collections.abc import Mapping
from typing import Any

from everspot_local.gcp.answers import ApiError
from everspot_local.gcp.iam.policies import Policies
from everspot_local.gcp.iam.policy_calls import HasPermission, policy_routes
from everspot_local.gcp.refusals import absent
from everspot_local.gcp.router import Handler, Request

ACCOUNT = "billingAccounts/000000-000000-000000"


def routes(project: str, number: str, policies: Policies, has_permission: HasPermission) -> Mapping[str, Handler]:
    """Return handlers by method id.

    Args:
        project: the project's id.
        number: the project's number.
        policies: where the policies are stored.
        has_permission: returns whether a caller has a permission on a resource.
    """

    def get(request: Request) -> dict[str, Any]:
        if request.params["name"].removeprefix("projects/") not in (project, number):
            raise absent(f"Project not found: {request.params['name']}")
        return {
            "name": f"projects/{project}/billingInfo", "projectId": project, "billingAccountName": ACCOUNT,
            "billingEnabled": True,
        }  # fmt: skip

    def account(name: str) -> str:
        if name != ACCOUNT:
            raise ApiError(403, "forbidden", "The caller does not have permission")
        return name

    own = policy_routes("cloudbilling.billingAccounts", policies, has_permission, account)
    return {"cloudbilling.projects.getBillingInfo": get, **own}
