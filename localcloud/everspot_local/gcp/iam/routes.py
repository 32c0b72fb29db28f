"""Stands in for the IAM API: service accounts, custom and predefined roles, tokens for service accounts by others.

It has no keys, no signing, no workload identity pools and no pages.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from everspot_local.gcp.answers import not_here
from everspot_local.gcp.callers import LIFE, ApiCaller, Sessions
from everspot_local.gcp.iam.accounts import Accounts, ServiceAccount
from everspot_local.gcp.iam.policies import Policies
from everspot_local.gcp.iam.policy_calls import HasPermission, policy_routes
from everspot_local.gcp.iam.predefined import PREDEFINED
from everspot_local.gcp.iam.roles import Roles
from everspot_local.gcp.refusals import absent, bad
from everspot_local.gcp.router import Handler, Request
from everspot_local.market.clock import stamp

Document = dict[str, Any]
_ACCOUNTS, _ROLES = "iam.projects.serviceAccounts", "iam.projects.roles"


class IamApi:
    """The IAM API of a project."""

    def __init__(
        self, project: str, accounts: Accounts, roles: Roles, policies: Policies, has_permission: HasPermission
    ) -> None:
        self._project, self._accounts, self._roles = project, accounts, roles
        self._policies, self._has_permission = policies, has_permission

    def routes(self) -> Mapping[str, Handler]:
        """Return handlers by method id."""
        return {
            f"{_ACCOUNTS}.create": self._create_account,
            f"{_ACCOUNTS}.delete": self._delete_account,
            f"{_ACCOUNTS}.disable": lambda r: self._switch(r, disabled=True),
            f"{_ACCOUNTS}.enable": lambda r: self._switch(r, disabled=False),
            f"{_ACCOUNTS}.get": lambda r: self._accounts.document(self._account(r)),
            f"{_ACCOUNTS}.list": lambda _r: {"accounts": [self._accounts.document(a) for a in self._accounts.all()]},
            f"{_ACCOUNTS}.patch": self._patch_account,
            f"{_ACCOUNTS}.undelete": self._undelete_account,
            f"{_ROLES}.create": self._create_role,
            f"{_ROLES}.delete": lambda r: self._roles.document(self._roles.delete(self._role(r), r.params.get("etag"))),
            f"{_ROLES}.get": lambda r: self._roles.document(self._role(r)),
            f"{_ROLES}.list": self._list_roles,
            f"{_ROLES}.patch": self._patch_role,
            f"{_ROLES}.undelete": lambda r: self._roles.document(
                self._roles.undelete(self._role(r), r.body.get("etag"))
            ),
            "iam.roles.get": _predefined,
            **policy_routes(_ACCOUNTS, self._policies, self._has_permission, self._full),
        }

    def _create_account(self, request: Request) -> Document:
        self._check_project(request.params["name"])
        account = self._accounts.create(
            str(request.body.get("accountId") or ""), request.body.get("serviceAccount") or {}
        )
        return self._accounts.document(account)

    def _patch_account(self, request: Request) -> Document:
        fields = {name.strip() for name in str(request.body.get("updateMask") or "").split(",") if name.strip()}
        if unknown := fields - {"displayName", "display_name", "description"}:
            raise bad(f"The update mask names fields that cannot be changed: {', '.join(sorted(unknown))}.")
        if not fields:
            raise bad("The update mask is missing.")
        field_names = {"displayName" if name == "display_name" else name for name in fields}
        account_fields = request.body.get("serviceAccount") or {}
        return self._accounts.document(self._accounts.change(self._account(request), account_fields, field_names))

    def _delete_account(self, request: Request) -> Document:
        account = self._account(request)
        self._accounts.delete(account)
        self._policies.mark_deleted(account.email, account.unique_id)
        return {}

    def _undelete_account(self, request: Request) -> Document:
        account = self._accounts.undelete(request.params["name"].rpartition("/")[2])
        self._policies.back(account.email, account.unique_id)
        return {"restoredAccount": self._accounts.document(account)}

    def _switch(self, request: Request, *, disabled: bool) -> Document:
        self._account(request).disabled = disabled
        return {}

    def _account(self, request: Request) -> ServiceAccount:
        return self._accounts.find(request.params["name"].rpartition("/")[2])

    def _full(self, name: str) -> str:
        email = self._accounts.find(name.rpartition("/")[2]).email
        return f"projects/{self._project}/serviceAccounts/{email}"

    def _create_role(self, request: Request) -> Document:
        self._check_project(request.params["parent"])
        role = self._roles.create(str(request.body.get("roleId") or ""), request.body.get("role") or {})
        return self._roles.document(role)

    def _patch_role(self, request: Request) -> Document:
        mask = str(request.params.get("updateMask") or "title,description,includedPermissions,stage")
        fields = {name.strip().replace("included_permissions", "includedPermissions") for name in mask.split(",")}
        return self._roles.document(self._roles.change(self._role(request), request.body, fields))

    def _list_roles(self, request: Request) -> Document:
        full = request.params.get("view") == "FULL"
        roles = self._roles.all(deleted=bool(request.params.get("showDeleted")))
        return {"roles": [self._roles.document(role, full=full) for role in roles]}

    def _role(self, request: Request) -> Any:
        return self._roles.find(request.params["name"].rpartition("/")[2])

    def _check_project(self, name: str) -> None:
        if name != f"projects/{self._project}":
            raise absent(f"Unknown project {name}")


def _predefined(request: Request) -> Document:
    name = request.params["name"]
    if name not in PREDEFINED:
        raise absent(f"The role named {name} was not found.")
    return {"name": name, "includedPermissions": sorted(PREDEFINED[name]), "stage": "GA"}


def credentials_routes(accounts: Accounts, sessions: Sessions) -> Mapping[str, Handler]:
    """Return handlers of the IAM Service Account Credentials API: new tokens of a service account, each valid for as
    long as is asked, at most an hour of real time. What a token may be used for is not limited by its scopes."""

    def generate(request: Request) -> Document:
        life = _checked_token(request)
        email = accounts.find(request.params["name"].rpartition("/")[2]).email
        token = sessions.issue(ApiCaller(email), datetime.now(UTC), life)
        return {"accessToken": token.text, "expireTime": stamp(token.expires)}

    return {"iamcredentials.projects.serviceAccounts.generateAccessToken": generate}


def _checked_token(request: Request) -> timedelta:
    """Return how long the token of a request lasts. Service Account Credentials API, generateAccessToken: "The -
    wildcard character is required", of the scopes "at least one value", and of the lifetime "the maximum allowed value
    is 1 hour" where no organization policy extends it."""
    body, faults = request.body, []
    if body.get("delegates"):
        raise not_here("delegates of generateAccessToken")
    if not request.params["name"].startswith("projects/-/"):
        faults.append(f"name: {request.params['name']} has to begin with projects/-/")
    if not body.get("scope"):
        faults.append("scope: at least one is needed")
    lifetime = str(body.get("lifetime") or f"{LIFE.total_seconds():.0f}s")
    read = re.fullmatch(r"(\d+(?:\.\d+)?)s", lifetime)
    life = timedelta(seconds=float(read[1])) if read else timedelta()
    if not timedelta() < life <= LIFE:
        faults.append(f"lifetime: {lifetime} has to be more than 0s and at most {LIFE.total_seconds():.0f}s")
    if faults:
        raise bad(f"Request contains an invalid argument. {'; '.join(faults)}")
    return life


def resource_manager_routes(
    project: str, number: str, policies: Policies, has_permission: HasPermission, created: str
) -> Mapping[str, Handler]:
    """Return handlers of the Resource Manager API, which has the project and its policy."""

    def find(name: str) -> str:
        if name.removeprefix("projects/") not in (project, number):
            raise absent(f"Project not found: {name}")
        return f"projects/{project}"

    def get(request: Request) -> Document:
        find(request.params["projectId"])
        return {
            "projectId": project, "projectNumber": number, "name": project, "lifecycleState": "ACTIVE",
            "createTime": created,
        }  # fmt: skip

    prefix = "cloudresourcemanager.projects"
    return {f"{prefix}.get": get, **policy_routes(prefix, policies, has_permission, find)}


def resource_manager_v3_routes(routes: Mapping[str, Handler], project: str, number: str) -> Mapping[str, Handler]:
    """Return handlers of its version 3, in which a project has fewer fields in another form."""

    def get(request: Request) -> Document:
        if request.params["name"].removeprefix("projects/") not in (project, number):
            raise absent(f"Project not found: {request.params['name']}")
        return {"name": f"projects/{number}", "projectId": project, "displayName": project, "state": "ACTIVE"}

    return {**routes, "cloudresourcemanager.projects.get": get}
