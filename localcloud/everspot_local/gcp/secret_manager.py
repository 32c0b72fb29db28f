"""Stands in for Secret Manager: secrets with automatic replication, their versions, and who may read them.

It has no replication by the user, no rotation, no expiry, no regional secrets and no pages. Sources:
secretmanager.v1.json; Secret Manager documentation, "Quotas and limits" (64 KiB a version), "Create a secret" (ids).
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from everspot_local.gcp.answers import Present, not_here
from everspot_local.gcp.iam.policies import Policies
from everspot_local.gcp.iam.policy_calls import HasPermission, policy_routes
from everspot_local.gcp.refusals import absent, bad, exists_already, unready
from everspot_local.gcp.router import Handler, Request
from everspot_local.market.clock import stamp

BYTES = 65_536
_ID = re.compile(r"[A-Za-z0-9_-]{1,255}")
_SECRETS, _VERSIONS = "secretmanager.projects.secrets", "secretmanager.projects.secrets.versions"
_KNOWN = {"name", "replication", "labels", "annotations", "createTime", "etag", "versionDestroyTtl"}
Document = dict[str, Any]


@dataclass
class _Secret:
    document: Document
    versions: list[Document] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)


class SecretManager:
    """The secrets of a project. A name may carry the project's id or its number."""

    def __init__(
        self, now: Callable[[], datetime], project: str, number: str, policies: Policies, has_permission: HasPermission
    ) -> None:
        self._now, self._project, self._number = now, project, number
        self._policies, self._has_permission = policies, has_permission
        self._secrets: dict[str, _Secret] = {}

    def routes(self) -> Mapping[str, Handler]:
        """Return handlers by method id."""
        return {
            f"{_SECRETS}.addVersion": self._add,
            f"{_SECRETS}.create": self._create,
            f"{_SECRETS}.delete": self._delete,
            f"{_SECRETS}.get": lambda r: self._secret(r.params["name"]).document,
            f"{_SECRETS}.list": lambda _r: {"secrets": [s.document for _, s in sorted(self._secrets.items())]},
            f"{_SECRETS}.patch": self._patch,
            f"{_VERSIONS}.access": self._access,
            f"{_VERSIONS}.destroy": lambda r: self._state(r, "DESTROYED"),
            f"{_VERSIONS}.disable": lambda r: self._state(r, "DISABLED"),
            f"{_VERSIONS}.enable": lambda r: self._state(r, "ENABLED"),
            f"{_VERSIONS}.get": lambda r: self._version(r.params["name"])[1],
            f"{_VERSIONS}.list": lambda r: {"versions": self._secret(r.params["parent"]).versions[::-1]},
            **policy_routes(_SECRETS, self._policies, self._has_permission, self._full),
        }

    def _create(self, request: Request) -> Document:
        name, body = str(request.params.get("secretId") or ""), request.body
        if not _ID.fullmatch(name):
            raise bad(f"The provided Secret ID [{name}] does not match the expected format [[a-zA-Z_0-9]+].")
        _check(body)
        if name in self._secrets:
            raise exists_already(f"Secret [projects/{self._number}/secrets/{name}] already exists.")
        if "automatic" not in (body.get("replication") or {}):
            raise not_here("secrets whose replication is not automatic")
        fields = {key: value for key, value in body.items() if value is not None and key != "name"}
        secret = {
            **fields, "name": f"projects/{self._number}/secrets/{name}", "createTime": stamp(self._now()),
            "etag": '"1"', "replication": {"automatic": Present()},
        }  # fmt: skip
        self._secrets[name] = _Secret(secret)
        return secret

    def _patch(self, request: Request) -> Document:
        secret = self._secret(request.params["name"])
        fields = {name.strip() for name in str(request.params.get("updateMask") or "").split(",") if name.strip()}
        if not fields or fields - {"labels", "annotations"}:
            raise bad(f"The update mask names fields that cannot be changed: {', '.join(sorted(fields)) or 'none'}.")
        secret.document |= {name: request.body.get(name) or {} for name in fields}
        return secret.document

    def _delete(self, request: Request) -> Document:
        self._secret(request.params["name"])
        name = _id(request.params["name"])
        del self._secrets[name]
        self._policies.forget(f"projects/{self._project}/secrets/{name}")
        return {}

    def _add(self, request: Request) -> Document:
        secret = self._secret(request.params["parent"])
        try:
            data = base64.b64decode((request.body.get("payload") or {}).get("data") or "", validate=True)
        except binascii.Error:
            raise bad("The payload's data is no base64.") from None
        if not data or len(data) > BYTES:
            raise bad(f"The payload must have 1 to {BYTES} bytes.")
        secret.data.append(data)
        version = {
            "name": f"{secret.document['name']}/versions/{len(secret.data)}", "createTime": stamp(self._now()),
            "state": "ENABLED", "etag": '"1"', "replicationStatus": {"automatic": Present()},
        }  # fmt: skip
        secret.versions.append(version)
        return version

    def _access(self, request: Request) -> Document:
        secret, version = self._version(request.params["name"])
        if version["state"] != "ENABLED":
            raise unready(f"Secret Version [{version['name']}] is in {version['state']} state.")
        data = secret.data[int(version["name"].rpartition("/")[2]) - 1]
        return {"name": version["name"], "payload": {"data": base64.b64encode(data).decode()}}

    def _state(self, request: Request, state: str) -> Document:
        version = self._version(request.params["name"])[1]
        if version["state"] == "DESTROYED":
            raise unready(f"Secret Version [{version['name']}] is in DESTROYED state.")
        version["state"] = state
        return version

    def _version(self, name: str) -> tuple[_Secret, Document]:
        path, _, number = name.partition("/versions/")
        secret = self._secret(path)
        version_number = str(len(secret.versions)) if number == "latest" else number
        for version in secret.versions:
            if version["name"].rpartition("/")[2] == version_number:
                return secret, version
        raise absent(f"Secret Version [{secret.document['name']}/versions/{number}] not found.")

    def _full(self, name: str) -> str:
        self._secret(name)
        return f"projects/{self._project}/secrets/{_id(name)}"

    def _secret(self, name: str) -> _Secret:
        secret = self._secrets.get(_id(name))
        if secret is None or name.split("/")[1] not in (self._project, self._number):
            raise absent(f"Secret [{name}] not found.")
        return secret


def _check(body: Mapping[str, Any]) -> None:
    unknown = sorted(key for key, value in body.items() if value and key not in _KNOWN)
    if unknown:
        raise not_here(f"{', '.join(unknown)} of secrets")


def _id(name: str) -> str:
    return name.split("/secrets/")[-1].partition("/")[0]
