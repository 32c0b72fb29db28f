"""Stands in for Cloud Billing as far as the provider reads a project by it: which account pays.

It has no price lists and no budgets.
"""

from collections.abc import Mapping
from typing import Any

from everspot_local.gcp.refusals import absent
from everspot_local.gcp.router import Handler, Request

ACCOUNT = "billingAccounts/000000-000000-000000"


def routes(project: str, number: str) -> Mapping[str, Handler]:
    """What answers, by method. `project`, `number`: the project's."""

    def get(request: Request) -> dict[str, Any]:
        if request.params["name"].removeprefix("projects/") not in (project, number):
            raise absent(f"Project not found: {request.params['name']}")
        return {
            "name": f"projects/{project}/billingInfo", "projectId": project, "billingAccountName": ACCOUNT,
            "billingEnabled": True,
        }  # fmt: skip

    return {"cloudbilling.projects.getBillingInfo": get}
