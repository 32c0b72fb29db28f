"""Google's error codes, sorted by what can be done about them. Codes are compared here and nowhere else.

One failure has several codes: the reason of a refused request (`quotaExceeded`), the code of a failed operation
(`QUOTA_EXCEEDED`), the status of the newer APIs (`RESOURCE_EXHAUSTED`), and the reason of an ErrorInfo
(`RATE_LIMIT_EXCEEDED`). They are compared regardless of spelling.

Sources: Compute Engine documentation, "Troubleshoot VM creation" and "Troubleshoot resource availability errors";
Google APIs' `google.rpc.Code`; Cloud Storage documentation, "HTTP status and error codes"; the provisioner of SkyPilot
(sky/provision/gcp) and slurm-gcp's resume.py, which name the codes that they have met.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import requests
from everspot_core.capacity.launching import LaunchTrouble
from google.auth.exceptions import GoogleAuthError, TransportError

from everspot_clouds.base import CloudError, Codes, Trouble, fixes

THROTTLING = frozenset(
    {
        "rateLimitExceeded",
        "userRateLimitExceeded",
        "RATE_LIMIT_EXCEEDED",
        "RESOURCE_OPERATION_RATE_EXCEEDED",
        "tooManyRequests",
        "conflictingOperationsInProgress",
    }
)
CAPACITY = frozenset(
    {
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        "REGION_RESOURCE_POOL_EXHAUSTED",
        "RESOURCE_POOL_EXHAUSTED",
        "RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        "GPU_STOCKOUT",
        "STOCKOUT",
        "insufficientCapacity",
        "VM_MIN_COUNT_NOT_REACHED",  # of a whole request; other errors beside it say why
        "PREEMPTED",
        "IP_SPACE_EXHAUSTED",
        "IP_SPACE_EXHAUSTED_WITH_DETAILS",
    }
)
QUOTA = frozenset(
    {
        "QUOTA_EXCEEDED",
        "quotaExceeded",
        "QUOTA_LIMIT_EXCEEDED",
        "CPUS_ALL_REGIONS_EXCEEDED",
        "GPUS_ALL_REGIONS_EXCEEDED",
        "limitExceeded",
        "RESOURCE_EXHAUSTED",
    }
)
CREDENTIALS = frozenset(
    {
        "PERMISSIONS_ERROR",
        "SERVICE_ACCOUNT_ACCESS_DENIED",  # of an operation, with status 400; also of an account or a grant that is new
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "forbidden",
        "required",  # "Required 'compute.instances.delete' permission …" has it as its reason
        "insufficientPermissions",
        "IAM_PERMISSION_DENIED",
        "authError",
        "accessNotConfigured",
        "SERVICE_DISABLED",
        "BILLING_DISABLED",
        "billingNotEnabled",
        "BILLING_NOT_ACTIVE",
        "ACCESS_TOKEN_EXPIRED",
        "ACCESS_TOKEN_SCOPE_INSUFFICIENT",
        "CREDENTIALS_MISSING",
        "CONSUMER_INVALID",
        "CONSUMER_SUSPENDED",
        "accountDisabled",
        "invalid_grant",
        "ORG_RESTRICTION_VIOLATION",
    }
)
REQUEST = frozenset(
    {
        "CONDITION_NOT_MET",  # an organization's policy: "Constraint constraints/compute.… violated"
        "conditionNotMet",
        "POLICY_VIOLATION",
        "FAILED_PRECONDITION",
        "INVALID_FIELD_VALUE",
        "INVALID_USAGE",
        "INVALID_ARGUMENT",
        "RESOURCE_NOT_FOUND",
        "NOT_FOUND",
        "RESOURCE_ALREADY_EXISTS",
        "alreadyExists",
        "duplicate",
        "UNSUPPORTED_MACHINE_TYPE",
        "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE",
    }
)
TRANSIENT = frozenset(
    {
        "INTERNAL_ERROR",
        "INTERNAL",
        "backendError",
        "internalError",
        "SERVICE_UNAVAILABLE",
        "UNAVAILABLE",
        "DEADLINE_EXCEEDED",
        "ABORTED",
        "RESOURCE_NOT_READY",
    }
)
BY_MINUTE = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED"})
"""Codes of a quota of requests a minute."""
SUMMARY = frozenset({"VM_MIN_COUNT_NOT_REACHED", "MULTIPLE_ERRORS"})
"""Codes of a whole request that do not say why it failed."""
TAKEN = frozenset({"alreadyExists", "RESOURCE_ALREADY_EXISTS", "ALREADY_EXISTS", "duplicate"})

FIX = fixes(
    "Google Cloud",
    more="https://console.cloud.google.com/iam-admin/quotas",
    log_in="gcloud auth application-default login",
)
"""What a person can do about each kind of failure."""

_CODES = Codes(
    {
        Trouble.THROTTLED: THROTTLING,
        Trouble.CAPACITY: CAPACITY,
        Trouble.QUOTA: QUOTA,
        Trouble.CREDENTIALS: CREDENTIALS,
        Trouble.REQUEST: REQUEST,
        Trouble.TRANSIENT: TRANSIENT,
    }
)

_QUOTA_METRIC = re.compile(r"Quota '([A-Z0-9_]+)' exceeded", re.IGNORECASE)
_TAKEN_BACK = re.compile(r"preempt(ed|ion)", re.IGNORECASE)

OWN_FIX = {
    frozenset({"SERVICE_DISABLED", "accessNotConfigured"}): (
        "the project's services are not switched on: pulumi up -s gcp-account, once per project; wait some minutes then"
    ),
    frozenset({"BILLING_DISABLED", "billingNotEnabled", "BILLING_NOT_ACTIVE"}): (
        "the project has no billing account: link one, https://console.cloud.google.com/billing/linkedaccount"
    ),
}
"""The same by codes, where the kind of failure alone would mislead."""


@dataclass(frozen=True, slots=True)
class OperationError:
    """One error of an operation. `metric`: the exceeded quota; `family`: the GPUs or vCPUs that it counts, where it
    counts each family; `zone` and `machine`: the pool without capacity."""

    code: str
    message: str = ""
    metric: str = ""
    zone: str = ""
    machine: str = ""
    family: str = ""


@dataclass(frozen=True, slots=True)
class ApiRefusal:
    """The facts of an answer that refuses a request."""

    status: int
    codes: tuple[str, ...] = ()
    message: str = ""
    details: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)


class ApiError(Exception):
    """A request that was refused."""

    def __init__(self, refusal: ApiRefusal) -> None:
        self.refusal = refusal
        super().__init__(f"{self.code or refusal.status}: {refusal.message}")

    @property
    def code(self) -> str:
        """The most specific of its codes; empty without a code."""
        return next((c for c in self.refusal.codes if classify_code(c) is not None), next(iter(self.refusal.codes), ""))

    @property
    def missing(self) -> bool:
        """Whether the requested resource does not exist."""
        return self.refusal.status == 404

    @property
    def exists(self) -> bool:
        """Whether the resource to create exists already."""
        return self.refusal.status == 409 and any(_CODES.among(code, TAKEN) for code in self.refusal.codes)


def refills_by_the_minute(error: Exception) -> bool:
    """Return whether a quota of requests a minute is used up. It is filled up again when a minute of the clock begins
    ("Compute Engine rate quotas": wait a minute), so that it is of no use to ask again a second later."""
    return isinstance(error, ApiError) and any(_CODES.among(code, BY_MINUTE) for code in error.refusal.codes)


class StillUnderWay(Exception):
    """An operation that is not done within the longest wait."""


def refused(status: int, body: Any) -> ApiError:
    """Return the error for an answer, which may come from something other than an API."""
    detail = body.get("error") if isinstance(body, Mapping) else None
    if isinstance(detail, str):  # of the token service: {"error": "invalid_grant", "error_description": …}
        return ApiError(ApiRefusal(status, (detail,), str(body.get("error_description") or "")))
    if not isinstance(detail, Mapping):
        return ApiError(ApiRefusal(status, (), f"answered {status}"))
    details = tuple(d for d in detail.get("details") or () if isinstance(d, Mapping))
    reasons = [str(e["reason"]) for e in detail.get("errors") or () if isinstance(e, Mapping) and e.get("reason")]
    infos = [str(d["reason"]) for d in details if d.get("reason")]
    codes = dict.fromkeys([*infos, *reasons, *([str(detail["status"])] if detail.get("status") else [])])
    return ApiError(ApiRefusal(status, tuple(codes), str(detail.get("message") or f"answered {status}"), details))


def read_failures(errors: Iterable[Mapping[str, Any]]) -> list[OperationError]:
    """Return the errors of an operation (`error.errors`) or of an instance that a group could not make
    (`lastAttempt.errors.errors`). Errors that only sum up others are left out if there are others."""
    failures = [_read_failure(raw) for raw in errors]
    specific = [failure for failure in failures if not _CODES.among(failure.code, SUMMARY)]
    return specific or failures


def _read_failure(raw: Mapping[str, Any]) -> OperationError:
    code, message = str(raw.get("code") or ""), str(raw.get("message") or "")
    details = [d for d in raw.get("errorDetails") or () if isinstance(d, Mapping)]
    quotas = [d["quotaInfo"] for d in details if isinstance(d.get("quotaInfo"), Mapping)]
    infos = [d["errorInfo"].get("metadatas") or {} for d in details if isinstance(d.get("errorInfo"), Mapping)]
    metadata = {key: value for info in infos for key, value in info.items()}
    by_words = _QUOTA_METRIC.search(message)
    metric = next((str(q.get("metricName") or "") for q in quotas), "") or (by_words.group(1) if by_words else "")
    dimensions = next((q.get("dimensions") or {} for q in quotas), {})
    return OperationError(
        code,
        message,
        metric.rsplit("/", 1)[-1].upper(),
        str(metadata.get("zone") or ""),
        str(metadata.get("vmType") or ""),
        str(dimensions.get("gpu_family") or dimensions.get("vm_family") or ""),
    )


def classify_code(code: str) -> Trouble | None:
    """Return the kind of failure of an error code, in any of its spellings; None if no table has it."""
    return _CODES.kind(code)


def trouble(error: Exception) -> Trouble:
    """Return the kind of failure of an error. A code that no table has is judged by the HTTP status."""
    if isinstance(error, StillUnderWay):
        return Trouble.TRANSIENT
    if isinstance(error, ApiError):
        return _classify(error.refusal)
    if isinstance(error, CloudError):
        return error.trouble
    if isinstance(error, TransportError):
        return Trouble.TRANSIENT
    if isinstance(error, GoogleAuthError):
        return Trouble.CREDENTIALS
    return Trouble.TRANSIENT if isinstance(error, requests.RequestException | OSError) else Trouble.REQUEST


def _classify(refusal: ApiRefusal) -> Trouble:
    if refusal.status == 429:  # whatever the quota is called: it is one of requests
        return Trouble.THROTTLED
    for code in refusal.codes:
        listed = classify_code(code)
        if listed is not None:
            return listed
    if refusal.status in (401, 403):
        return Trouble.CREDENTIALS
    return Trouble.REQUEST if 400 <= refusal.status < 500 else Trouble.TRANSIENT


def launch_trouble(code: str, message: str = "") -> LaunchTrouble:
    """Return the kind of failure of an operation's error. Codes that no table has are transient, except `INVALID…`,
    `UNSUPPORTED…` and missing resources. SkyPilot has met `UNSUPPORTED_OPERATION` of a VM preempted while it began."""
    listed, plain = classify_code(code), _CODES.plain(code)
    if listed is not None:
        return LaunchTrouble(listed.value)
    if plain == "unsupportedoperation" and _TAKEN_BACK.search(message):
        return LaunchTrouble.CAPACITY
    wrong = plain.startswith(("invalid", "unsupported", "missing")) or plain.endswith("notfound")
    return LaunchTrouble.REQUEST if wrong else LaunchTrouble.TRANSIENT


def is_unresolved(code: str) -> bool:
    """Return whether a request names a resource that Google does not know. It may only not know it yet: a new service
    account is known after seconds to minutes (IAM documentation, "Create service accounts")."""
    return _CODES.plain(code).endswith("notfound")


def fix(error: Exception) -> str:
    """Return the fix of an error, for people."""
    codes = error.refusal.codes if isinstance(error, ApiError) else ()
    own = (words for group, words in OWN_FIX.items() if any(_CODES.among(code, group) for code in codes))
    return next(own, FIX[trouble(error)])


def to_cloud_error(error: Exception) -> CloudError:
    """Return the error in words for people, with a fix."""
    kind = trouble(error)
    if isinstance(error, ApiError):
        return CloudError(f"Google Cloud refused: {error}", kind, fix(error))
    return CloudError(str(error) or type(error).__name__, kind, FIX[kind])
