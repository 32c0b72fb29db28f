"""Stands in for custom roles of a project, which are deleted in two steps and keep their id for 37 days.

Sources (IAM documentation): "Create and manage custom roles" (stages; a deleted role can be restored for 7 days,
then its id stays taken for 30 more), "Quotas and limits"; the words for an id that is taken, as met:
github.com/terraform-google-modules/terraform-google-bastion-host/issues/14.
"""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from everspot_local.gcp.iam.permissions import KNOWN, NOT_IN_PROJECT_ROLES
from everspot_local.gcp.iam.predefined import PREDEFINED
from everspot_local.gcp.refusals import aborted, absent, bad, exhausted, exists_already, unready

AT_MOST = 300
PERMISSIONS_AT_MOST = 3000
BYTES_AT_MOST = 64 * 1024
"""Title, description and permissions of a role together."""
TITLE, DESCRIPTION = 100, 300
UNDELETE = timedelta(days=7)
TAKEN = timedelta(days=37)
_ID = re.compile(r"[a-zA-Z0-9_.]{3,64}")


@dataclass
class Role:
    """One custom role. `deleted`: when it was deleted, or None."""

    id: str
    title: str = ""
    description: str = ""
    permissions: tuple[str, ...] = ()
    stage: str = "ALPHA"
    deleted: datetime | None = None
    revision: int = field(default=1)

    @property
    def etag(self) -> str:
        """Return the ETag of the role's present contents."""
        return base64.b64encode((0x0706_0000_0000_0000 + self.revision).to_bytes(8, "big")).decode()


class Roles:
    """The custom roles of a project. Every method raises `ApiError` in IAM's words."""

    def __init__(self, now: Callable[[], datetime], project: str) -> None:
        self._now, self._project = now, project
        self._roles: dict[str, Role] = {}

    def permissions(self, name: str) -> frozenset[str] | None:
        """Return the permissions of a role by its full name: none if it is deleted or disabled; None if it does not
        exist."""
        if name in PREDEFINED:
            return PREDEFINED[name]
        role = self._roles.get(name.removeprefix(f"projects/{self._project}/roles/"))
        if role is None or "/" not in name:
            return None
        return frozenset() if role.deleted or role.stage == "DISABLED" else frozenset(role.permissions)

    def create(self, role_id: str, body: Mapping[str, Any]) -> Role:
        """Create a role.

        Raises:
            ApiError: for a bad id or content, an id that is taken, also by a role that is marked for deletion, or one
                role too many.
        """
        self._forget()
        if not _ID.fullmatch(role_id):
            raise bad(f"The role_id {role_id!r} must be 3 to 64 letters, digits, underscores"
                           " and full stops.")  # fmt: skip
        existing = self._roles.get(role_id)
        if existing is not None and existing.deleted is not None:
            raise unready(f"You can't create a role_id ({role_id}) which has been marked"
                           " for deletion.")  # fmt: skip
        if existing is not None:
            raise exists_already(f"A role named {role_id} in projects/{self._project} already exists.")
        if len(self._roles) >= AT_MOST:
            raise exhausted(f"Maximum number of roles reached. Maximum is: {AT_MOST}")
        role = _filled(Role(role_id), body, {"title", "description", "includedPermissions", "stage"})
        self._roles[role_id] = role
        return role

    def find(self, role_id: str) -> Role:
        """Return a role, deleted or not.

        Raises:
            ApiError: 404.
        """
        self._forget()
        if role_id not in self._roles:
            raise absent(f"The role named projects/{self._project}/roles/{role_id} was not found.")
        return self._roles[role_id]

    def all(self, *, deleted: bool) -> list[Role]:
        """Return the roles, with or without the deleted ones."""
        self._forget()
        return [role for role in self._roles.values() if deleted or role.deleted is None]

    def change(self, role: Role, body: Mapping[str, Any], fields: set[str]) -> Role:
        """Change the named fields of a role to what the body says, or to nothing where it does not say them.

        Raises:
            ApiError: for a deleted role, a stale ETag, or bad content.
        """
        if role.deleted is not None:
            raise unready(f"You can't update the deleted role {role.id}.")
        _check_etag(role, body.get("etag"))
        changed = _filled(role, body, fields)
        changed.revision += 1
        return changed

    def delete(self, role: Role, etag: str | None) -> Role:
        """Delete a role: its grants lose their effect, and its id stays taken for a while.

        Raises:
            ApiError: for a role that is deleted already, or a stale ETag.
        """
        if role.deleted is not None:
            raise unready(f"You can't delete the role {role.id}, which is deleted already.")
        _check_etag(role, etag)
        role.deleted = self._now()
        role.revision += 1
        return role

    def undelete(self, role: Role, etag: str | None) -> Role:
        """Restore a deleted role, and its grants with it.

        Raises:
            ApiError: for a stale ETag, or a role that was deleted too long ago.
        """
        _check_etag(role, etag)
        if role.deleted is not None and self._now() >= role.deleted + UNDELETE:
            raise unready(f"You can't undelete the role {role.id}: it is being deleted for"
                           " good.")  # fmt: skip
        role.deleted = None
        role.revision += 1
        return role

    def document(self, role: Role, *, full: bool = True) -> dict[str, Any]:
        """Return the role as the API shows it. `full`: with its permissions."""
        document = {
            "name": f"projects/{self._project}/roles/{role.id}",
            "title": role.title,
            "description": role.description,
            "includedPermissions": list(role.permissions) if full else [],
            "stage": role.stage if role.stage != "ALPHA" else "",
            "etag": role.etag,
            "deleted": role.deleted is not None,
        }
        return {key: value for key, value in document.items() if value}

    def _forget(self) -> None:
        now = self._now()
        for role_id in [r.id for r in self._roles.values() if r.deleted and now >= r.deleted + TAKEN]:
            del self._roles[role_id]


def _check_etag(role: Role, etag: str | None) -> None:
    if etag and etag != role.etag:
        raise aborted(f"There were concurrent changes of the role {role.id}: its ETag is another one.")


def _filled(role: Role, body: Mapping[str, Any], fields: set[str]) -> Role:
    permissions = tuple(sorted(set(body.get("includedPermissions") or ())))
    title, description = str(body.get("title", "")), str(body.get("description", ""))
    stage = body.get("stage") or "ALPHA"
    unknown = [p for p in permissions if p not in KNOWN or p in NOT_IN_PROJECT_ROLES]
    if unknown:
        raise bad(f"Permission {unknown[0]} is not valid.")
    size = len((title + description + "".join(permissions)).encode())
    if len(permissions) > PERMISSIONS_AT_MOST or size > BYTES_AT_MOST:
        raise bad(f"A role holds at most {PERMISSIONS_AT_MOST} permissions and 64 KB.")
    if len(title.encode()) > TITLE or len(description.encode()) > DESCRIPTION:
        raise bad(f"The title of a role takes {TITLE} bytes, the description {DESCRIPTION}.")
    if "title" in fields:
        role.title = title
    if "description" in fields:
        role.description = description
    if "includedPermissions" in fields:
        role.permissions = permissions
    if "stage" in fields:
        role.stage = stage
    return role
