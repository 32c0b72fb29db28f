"""Stands in for buckets as resources of Cloud Storage's JSON API: the request, its defaults, and changes.

It carries no lifecycle rule out. A deleted bucket is gone, though its objects were softly deleted. Sources: Bucket in
storage.v1.json; "Quotas and limits" (one creation or deletion in two seconds a project); "Uniform bucket-level access"
(90 days until it is locked); "Customer-managed encryption keys" (the service agent must be allowed to use the key).
"""

import base64
import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from everspot_local.gcp.answers import ApiError, invalid
from everspot_local.gcp.refusals import bad
from everspot_local.gcp.storage.bucket_rules import SOFT_DEFAULT, check_bucket, location
from everspot_local.gcp.storage.object_model import RetentionSettings, StorageRefused
from everspot_local.gcp.storage.objects import Objects
from everspot_local.market.clock import stamp

CHANGE_EVERY = timedelta(seconds=2)
"""The least time between two creations or deletions of buckets in a project: documented as approximate; market time."""
LOCKED_AFTER = timedelta(days=90)
Document = dict[str, Any]


class BucketDocuments:
    """The buckets of a project as documents, over the same objects as the XML API. Methods raise `ApiError`.

    Args:
        objects: contents of the buckets.
        now: market time.
        number: of the project.
        url: of the JSON API.
        key_usable: whether Cloud Storage may use a key of KMS.
        strict: whether the pace of creations and deletions is kept.
    """

    def __init__(
        self,
        objects: Objects,
        now: Callable[[], datetime],
        number: str,
        url: Callable[[], str],
        key_usable: Callable[[str], bool],
        *,
        strict: bool,
    ) -> None:
        self._objects, self._now, self._number, self._url = objects, now, number, url
        self._key_usable, self._strict = key_usable, strict
        self._documents: dict[str, Document] = {}
        self._changed: datetime | None = None

    def insert(self, body: Mapping[str, Any]) -> Document:
        """Create a bucket."""
        name = str(body.get("name") or "")
        if not name:
            raise ApiError(400, "required", "Required field 'name' not specified")
        check_bucket(body)
        where, kind = location(str(body.get("location") or ""))
        bucket = self._filled({**_clean(body), "location": where, "locationType": kind}, {})
        with translated():
            self._pace()
            self._objects.make_bucket(name)
        self._documents[name] = bucket
        self._keep(bucket)
        return bucket

    def get(self, name: str) -> Document:
        """Return a bucket."""
        if name not in self._documents:
            raise ApiError(404, "notFound", "The specified bucket does not exist.")
        return self._documents[name]

    def is_uniform(self, name: str) -> bool:
        """Return whether a bucket exists and has uniform bucket-level access."""
        bucket = self._documents.get(name)
        return bucket is not None and bool(bucket["iamConfiguration"]["uniformBucketLevelAccess"]["enabled"])

    def all(self, prefix: str) -> list[Document]:
        """Return the buckets whose names have a prefix, in order."""
        return [self._documents[name] for name in sorted(self._documents) if name.startswith(prefix)]

    def patch(self, name: str, body: Mapping[str, Any], metageneration: str | None) -> Document:
        """Change the named fields; null removes a field, or a label."""
        current = self.get(name)
        self.check_metageneration(current, metageneration)
        merged = _patched(current, body)
        return self._changed_to(name, current, merged)

    def update(self, name: str, body: Mapping[str, Any], metageneration: str | None) -> Document:
        """Replace all changeable fields."""
        current = self.get(name)
        self.check_metageneration(current, metageneration)
        fixed_fields = ("name", "location", "locationType", "storageClass")
        return self._changed_to(name, current, {**{k: current[k] for k in fixed_fields}, **_clean(body)})

    def delete(self, name: str, metageneration: str | None) -> None:
        """Delete a bucket, which must be empty."""
        self.check_metageneration(self.get(name), metageneration)
        with translated():
            self._pace()
            self._objects.drop_bucket(name)
        del self._documents[name]

    def lock(self, name: str, metageneration: str) -> Document:
        """Lock the retention policy, so that it can never be shortened nor removed.

        Raises:
            ApiError: for a bucket that does not exist, has no such policy, or has changed since it was read.
        """
        current = self.get(name)
        self.check_metageneration(current, metageneration)
        if "retentionPolicy" not in current:
            raise bad("The bucket has no retention policy.")
        changed = copy.deepcopy(current)
        changed["retentionPolicy"]["isLocked"] = True
        return self._changed_to(name, current, changed)

    def check_metageneration(self, current: Document, expected: str | None) -> None:
        """Refuse a change of a bucket that has changed since it was read."""
        if expected is not None and str(expected) != current["metageneration"]:
            raise ApiError(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")

    def _changed_to(self, name: str, current: Document, merged: Document) -> Document:
        check_bucket(merged)
        for fixed in ("name", "location"):
            if str(merged.get(fixed, current[fixed])).upper() != current[fixed].upper():
                raise invalid(fixed, merged[fixed], "It cannot be changed.")
        changed = self._filled(
            {**merged, "location": current["location"], "locationType": current["locationType"]}, current
        )
        _check_locks(current, changed, self._now())
        self._documents[name] = changed
        self._keep(changed)
        return changed

    def _filled(self, body: Document, current: Document) -> Document:
        """Return a bucket with the fields that Cloud Storage adds."""
        now, name = stamp(self._now()), body["name"]
        key = (body.get("encryption") or {}).get("defaultKmsKeyName")
        if key and not self._key_usable(key):
            raise ApiError(403, "forbidden", "Permission denied on Cloud KMS key. Please ensure that your Cloud Storage"
                           " service account has been authorized to use this key.")  # fmt: skip
        bucket = {**body, "kind": "storage#bucket", "id": name, "projectNumber": self._number}
        bucket["selfLink"] = f"{self._url()}/b/{name}"
        bucket["metageneration"] = str(int(current.get("metageneration", "0")) + 1)
        bucket["etag"] = base64.b64encode(bucket["metageneration"].encode()).decode()
        bucket["timeCreated"], bucket["updated"] = current.get("timeCreated", now), now
        bucket.setdefault("storageClass", "STANDARD")
        bucket.setdefault("rpo", "DEFAULT")
        bucket["softDeletePolicy"] = self._soft(body, current)
        bucket["iamConfiguration"] = self._access(body, current)
        if bucket.get("retentionPolicy"):
            before = current.get("retentionPolicy", {})
            bucket["retentionPolicy"] = {"effectiveTime": before.get("effectiveTime", now), **bucket["retentionPolicy"]}
        return {key: value for key, value in bucket.items() if value not in (None, {}, [])}

    def _soft(self, body: Document, current: Document) -> Document:
        seconds_text = (body.get("softDeletePolicy") or {}).get("retentionDurationSeconds")
        seconds = str(SOFT_DEFAULT if seconds_text is None else seconds_text)
        before = current.get("softDeletePolicy", {})
        if before.get("retentionDurationSeconds") == seconds:
            return dict(before)
        return {"retentionDurationSeconds": seconds, "effectiveTime": stamp(self._now())}

    def _access(self, body: Document, current: Document) -> Document:
        iam = body.get("iamConfiguration") or {}
        uniform = dict(iam.get("uniformBucketLevelAccess") or {"enabled": False})
        before = (current.get("iamConfiguration") or {}).get("uniformBucketLevelAccess") or {}
        uniform = {"enabled": bool(uniform.get("enabled"))}
        if uniform["enabled"]:
            uniform["lockedTime"] = before.get("lockedTime") or stamp(self._now() + LOCKED_AFTER)
        prevention = iam.get("publicAccessPrevention") or "inherited"
        return {
            "uniformBucketLevelAccess": uniform, "bucketPolicyOnly": dict(uniform),
            "publicAccessPrevention": "inherited" if prevention == "unspecified" else prevention,
        }  # fmt: skip

    def _keep(self, bucket: Document) -> None:
        def seconds(part: str, field: str) -> timedelta:
            return timedelta(seconds=int((bucket.get(part) or {}).get(field) or 0))

        self._objects.set_retention(
            bucket["name"],
            RetentionSettings(
                versions=bool((bucket.get("versioning") or {}).get("enabled")),
                soft=seconds("softDeletePolicy", "retentionDurationSeconds"),
                hold=seconds("retentionPolicy", "retentionPeriod"),
            ),
        )

    def _pace(self) -> None:
        now = self._now()
        if self._strict and self._changed is not None and now < self._changed + CHANGE_EVERY:
            raise StorageRefused(
                429, "SlowDown", "The project exceeded the rate limit for creating and deleting buckets."
            )
        self._changed = now


_REASONS = {
    304: "notModified",
    403: "forbidden",
    404: "notFound",
    409: "conflict",
    412: "conditionNotMet",
    429: "rateLimitExceeded",
}
_SPECIAL = {"RetentionPolicyNotMet": "retentionPolicyNotMet", "InvalidBucketName": "invalid"}


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of the XML API from within in the JSON API's form ("HTTP status and error codes for JSON")."""
    try:
        yield
    except StorageRefused as error:
        reason = _SPECIAL.get(error.code, _REASONS.get(error.status, "invalid"))
        message = error.details if error.status == 404 and error.details else error.message
        raise ApiError(error.status, reason, message) from None


def _check_locks(current: Document, changed: Document, now: datetime) -> None:
    before, after = current.get("retentionPolicy", {}), changed.get("retentionPolicy", {})
    if before.get("isLocked") and int(after.get("retentionPeriod", 0)) < int(before["retentionPeriod"]):
        raise ApiError(403, "forbidden", "Cannot reduce retention duration of a locked Retention Policy for bucket"
                       f" '{current['name']}'.")  # fmt: skip
    uniform = current["iamConfiguration"]["uniformBucketLevelAccess"]
    still = changed["iamConfiguration"]["uniformBucketLevelAccess"]["enabled"]
    if uniform["enabled"] and not still and stamp(now) >= uniform["lockedTime"]:
        raise ApiError(412, "conditionNotMet", "Cannot disable uniform bucket-level access: it is locked.")


def _clean(body: Mapping[str, Any]) -> Document:
    return {key: value for key, value in body.items() if value is not None}


def _patched(current: Mapping[str, Any], body: Mapping[str, Any]) -> Document:
    """Apply a JSON merge patch: null removes, objects are merged, everything else is replaced."""
    patched = dict(current)
    for key, value in body.items():
        if value is None:
            patched.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(patched.get(key), Mapping):
            patched[key] = _patched(patched[key], value)
        else:
            patched[key] = _patched({}, value) if isinstance(value, Mapping) else value
    return patched
