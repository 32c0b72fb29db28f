"""Stands in for Cloud KMS as far as buckets need it: key rings and keys as documents, with policies.

It encrypts nothing: objects are stored in plain text. Rings are never deleted, keys only version by version. Source:
cloudkms.v1.json; Cloud KMS documentation, "Destroy and restore key versions" (30 days scheduled by default).
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from everspot_local.gcp.answers import not_here
from everspot_local.gcp.iam.names import inherited
from everspot_local.gcp.iam.policies import Policies
from everspot_local.gcp.iam.policy_calls import HasPermission, policy_routes
from everspot_local.gcp.refusals import absent, bad, exists_already, unready
from everspot_local.gcp.router import Handler, Request
from everspot_local.market.clock import stamp

DESTROYED_AFTER = timedelta(days=30)
_ID = re.compile(r"[A-Za-z0-9_-]{1,63}")
_RINGS = "cloudkms.projects.locations.keyRings"
_KEYS, _VERSIONS = f"{_RINGS}.cryptoKeys", f"{_RINGS}.cryptoKeys.cryptoKeyVersions"
_MUTABLE = {"labels", "rotationPeriod", "nextRotationTime"}
Document = dict[str, Any]


class Kms:
    """The keys of a project."""

    def __init__(self, now: Callable[[], datetime], policies: Policies, has_permission: HasPermission) -> None:
        self._now, self._policies, self._has_permission = now, policies, has_permission
        self._documents: dict[str, Document] = {}

    def usable(self, key: str, member: str) -> bool:
        """Return whether a key is enabled and a member may use it."""
        if key not in self._documents or self._documents[f"{key}/cryptoKeyVersions/1"]["state"] != "ENABLED":
            return False
        chain = inherited(key, key.split("/")[1])
        uses = ("cloudkms.cryptoKeyVersions.useToEncrypt", "cloudkms.cryptoKeyVersions.useToDecrypt")
        return all(self._policies.allows(member, use, chain, {"resource.name": key}) for use in uses)

    def routes(self) -> Mapping[str, Handler]:
        """Return handlers by method id."""
        return {
            f"{_RINGS}.create": self._create_ring,
            f"{_RINGS}.get": lambda r: self._get(r.params["name"]),
            f"{_RINGS}.list": lambda r: {"keyRings": self._under(r.params["parent"], "keyRings")},
            f"{_KEYS}.create": self._create_key,
            f"{_KEYS}.get": lambda r: self._get(r.params["name"]),
            f"{_KEYS}.list": lambda r: {"cryptoKeys": self._under(r.params["parent"], "cryptoKeys")},
            f"{_KEYS}.patch": self._patch_key,
            f"{_VERSIONS}.destroy": self._destroy,
            f"{_VERSIONS}.get": lambda r: self._get(r.params["name"]),
            f"{_VERSIONS}.list": lambda r: {"cryptoKeyVersions": self._under(r.params["parent"], "cryptoKeyVersions")},
            **policy_routes(_RINGS, self._policies, self._has_permission, lambda name: str(self._get(name)["name"])),
            **policy_routes(_KEYS, self._policies, self._has_permission, lambda name: str(self._get(name)["name"])),
        }

    def _create_ring(self, request: Request) -> Document:
        return self._create(f"{request.params['parent']}/keyRings", request.params.get("keyRingId"), {})

    def _create_key(self, request: Request) -> Document:
        self._get(request.params["parent"])
        body = {key: value for key, value in request.body.items() if value}
        if body.get("purpose") != "ENCRYPT_DECRYPT":
            raise not_here("keys of another purpose than ENCRYPT_DECRYPT")
        crypto_key = self._create(f"{request.params['parent']}/cryptoKeys", request.params.get("cryptoKeyId"), body)
        version = {
            "name": f"{crypto_key['name']}/cryptoKeyVersions/1", "state": "ENABLED", "protectionLevel": "SOFTWARE",
            "algorithm": "GOOGLE_SYMMETRIC_ENCRYPTION", "createTime": crypto_key["createTime"],
            "generateTime": crypto_key["createTime"],
        }  # fmt: skip
        self._documents[version["name"]] = version
        crypto_key["versionTemplate"] = {"protectionLevel": "SOFTWARE", "algorithm": "GOOGLE_SYMMETRIC_ENCRYPTION"}
        crypto_key.setdefault("destroyScheduledDuration", f"{int(DESTROYED_AFTER.total_seconds())}s")
        crypto_key["primary"] = version
        return crypto_key

    def _patch_key(self, request: Request) -> Document:
        key = self._get(request.params["name"])
        fields = {name.strip() for name in str(request.params.get("updateMask") or "").split(",") if name.strip()}
        if not fields or fields - _MUTABLE:
            raise bad(f"The update mask names fields that cannot be changed: {', '.join(sorted(fields)) or 'none'}.")
        for name in fields:
            key.pop(name, None)
            if request.body.get(name):
                key[name] = request.body[name]
        return key

    def _destroy(self, request: Request) -> Document:
        version = self._get(request.params["name"])
        if version["state"] != "ENABLED":
            raise unready(f"{version['name']} is not in a state in which it can be destroyed: {version['state']}.")
        version["state"] = "DESTROY_SCHEDULED"
        version["destroyTime"] = stamp(self._now() + DESTROYED_AFTER)
        return version

    def _create(self, folder: str, name: str | None, body: Document) -> Document:
        if not name or not _ID.fullmatch(name):
            raise bad(f"Invalid resource id {name!r}: it is 1 to 63 letters, digits, underscores and hyphens.")
        full = f"{folder}/{name}"
        if full in self._documents:
            raise exists_already(f"{full} already exists.")
        self._documents[full] = {**body, "name": full, "createTime": stamp(self._now())}
        return self._documents[full]

    def _get(self, name: str) -> Document:
        if name not in self._documents:
            raise absent(f"{name} not found.")
        return self._documents[name]

    def _under(self, parent: str, kind: str) -> list[Document]:
        return [d for name, d in sorted(self._documents.items()) if name.rpartition("/")[0] == f"{parent}/{kind}"]
