"""Stands in for Service Usage: which services are enabled in the project. Those that the local cloud has are enabled.

A service that is off is not there to be called either, but for the budgets of Cloud Billing, which look here. Nothing
is switched off. Source: serviceusage.v1.json.
"""

from collections.abc import Mapping
from typing import Any

from everspot_local.gcp.answers import not_here
from everspot_local.gcp.refusals import bad
from everspot_local.gcp.router import Handler, Request

ON = (
    "cloudkms", "cloudresourcemanager", "compute", "iam", "iamcredentials", "logging", "monitoring", "oslogin",
    "pubsub",     "secretmanager", "serviceusage", "storage", "storage-api", "storage-component", "sts",
)  # fmt: skip
_SERVICES = "serviceusage.services"
Document = dict[str, Any]


def routes(number: str, on: set[str]) -> Mapping[str, Handler]:
    """Return handlers by method id.

    Args:
        number: the project's number.
        on: enabled services, extended by calls.
    """

    def document(name: str) -> Document:
        return {
            "name": f"projects/{number}/services/{name}", "parent": f"projects/{number}", "config": {"name": name},
            "state": "ENABLED" if name in on else "DISABLED",
        }  # fmt: skip

    def list_all(request: Request) -> Document:
        if request.params.get("filter") not in (None, "", "state:ENABLED"):
            raise not_here(f"the filter {request.params['filter']} of services")
        return {"services": [document(name) for name in sorted(on)]}

    def enable(request: Request) -> Document:
        service_names = request.body.get("serviceIds") or [request.params.get("name", "").rpartition("/")[2]]
        if unknown := [name for name in service_names if not name.endswith(".googleapis.com")]:
            raise bad(f"Services {', '.join(unknown)} are not valid.")
        on.update(service_names)
        return {"name": "operations/noop.DONE_OPERATION", "done": True}

    return {
        f"{_SERVICES}.batchEnable": enable,
        f"{_SERVICES}.batchGet": lambda r: {
            "services": [document(name.rpartition("/")[2]) for name in r.params.get("names", [])]
        },
        f"{_SERVICES}.enable": enable,
        f"{_SERVICES}.get": lambda r: document(r.params["name"].rpartition("/")[2]),
        f"{_SERVICES}.list": list_all,
    }
