"""Stands in for Cloud Storage's validation of buckets: names of fields, durations, labels, lifecycle rules.

Sources: field descriptions of Bucket in storage.v1.json; Cloud Storage documentation: "Soft delete" (0, or 7 to 90
days), "Bucket labels", "Object Lifecycle Management" (100 rules; which conditions an action takes), "Retention
policies", "Bucket locations". What a bucket of ours never has is refused by name.
"""

import re
from collections.abc import Mapping
from typing import Any

from everspot_local.gcp.answers import invalid, not_here
from everspot_local.gcp.refusals import bad

SOFT_DEFAULT = 7 * 86400
SOFT = (SOFT_DEFAULT, 90 * 86400)
RETENTION_AT_MOST = 3_155_760_000
"""100 years, in seconds."""
LABELS, RULES = 64, 100
CLASSES = ("STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE")
MULTI = ("US", "EU", "ASIA")
_REGION = re.compile(r"[A-Z]+-[A-Z]+\d+")
_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")
_KNOWN = {
    "name", "location", "storageClass", "labels", "lifecycle", "versioning", "iamConfiguration", "softDeletePolicy",
    "retentionPolicy", "encryption", "rpo", "locationType",
}  # fmt: skip
_TOLD = {
    "kind", "id", "selfLink", "projectNumber", "metageneration", "etag", "timeCreated", "updated", "satisfiesPZS",
    "satisfiesPZI", "generation",
}  # fmt: skip
"""Fields of an answer that a client may send back."""
_ACTIONS = {"Delete", "SetStorageClass", "AbortIncompleteMultipartUpload"}
_CONDITIONS = {
    "age", "createdBefore", "customTimeBefore", "daysSinceCustomTime", "daysSinceNoncurrentTime", "isLive",
    "matchesPrefix", "matchesStorageClass", "matchesSuffix", "noncurrentTimeBefore", "numNewerVersions",
}  # fmt: skip
_OF_ABORT = {"age", "matchesPrefix", "matchesSuffix"}


def check_bucket(body: Mapping[str, Any]) -> None:
    """Refuse a bucket that Cloud Storage refuses, or that the local cloud does not support."""
    unknown = sorted(k for k, v in body.items() if k not in _KNOWN | _TOLD and _on(v))
    if unknown:
        raise not_here(f"{', '.join(unknown)} of buckets")
    _check_labels(body.get("labels") or {})
    _check_spans(body)
    if body.get("storageClass") and body["storageClass"] not in CLASSES:
        raise invalid("storageClass", body["storageClass"], f"It must be one of {', '.join(CLASSES)}.")
    for rule in (body.get("lifecycle") or {}).get("rule") or []:
        _check_rule(rule)
    if len((body.get("lifecycle") or {}).get("rule") or []) > RULES:
        raise bad(f"A lifecycle configuration has at most {RULES} rules.")
    prevention = (body.get("iamConfiguration") or {}).get("publicAccessPrevention")
    if prevention not in (None, "enforced", "inherited", "unspecified"):
        raise invalid("iamConfiguration.publicAccessPrevention", prevention, "It must be enforced or inherited.")


def location(name: str) -> tuple[str, str]:
    """Return a location in the form of answers, with its type."""
    code = (name or "US").upper()
    if code in MULTI:
        return code, "multi-region"
    if not _REGION.fullmatch(code):
        raise invalid("location", name, "The specified location constraint is not valid.")
    return code, "region"


def _on(value: Any) -> bool:
    """Return whether a field enables anything."""
    return any(_on(part) for part in value.values()) if isinstance(value, Mapping) else bool(value)


def _check_labels(labels: Mapping[str, Any]) -> None:
    wrong = [k for k, v in labels.items() if not _LABEL[0].fullmatch(k) or not _LABEL[1].fullmatch(v or "")]
    if wrong:
        raise invalid(
            "labels", ", ".join(wrong), "Keys and values are lower case letters, digits, - and _, at most 63."
        )
    if len(labels) > LABELS:
        raise bad(f"A bucket has at most {LABELS} labels.")


def _check_spans(body: Mapping[str, Any]) -> None:
    soft = (body.get("softDeletePolicy") or {}).get("retentionDurationSeconds")
    if soft is not None and int(soft) and not SOFT[0] <= int(soft) <= SOFT[1]:
        raise invalid("softDeletePolicy.retentionDurationSeconds", soft, "It must be 0, or from 7 to 90 days.")
    retention = (body.get("retentionPolicy") or {}).get("retentionPeriod")
    if retention is not None and not 0 < int(retention) <= RETENTION_AT_MOST:
        raise invalid("retentionPolicy.retentionPeriod", retention, "It must be above 0 and below 100 years.")


def _check_rule(rule: Mapping[str, Any]) -> None:
    action, conditions = rule.get("action") or {}, rule.get("condition") or {}
    kind = action.get("type")
    if kind not in _ACTIONS:
        raise invalid("lifecycle.rule.action.type", kind or "", f"It must be one of {', '.join(sorted(_ACTIONS))}.")
    condition_names = {name for name, value in conditions.items() if value not in (None, [], "")}
    if not condition_names:
        raise bad("A lifecycle management rule must have at least one condition.")
    wrong = condition_names - (_OF_ABORT if kind == "AbortIncompleteMultipartUpload" else _CONDITIONS)
    if wrong:
        raise bad(f"The action {kind} does not take the conditions {', '.join(sorted(wrong))}.")
    if kind == "SetStorageClass" and action.get("storageClass") not in CLASSES:
        raise invalid(
            "lifecycle.rule.action.storageClass", action.get("storageClass") or "", "It is missing or unknown."
        )
