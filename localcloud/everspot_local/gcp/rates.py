"""Stands in for Compute Engine's rate quotas: so many requests a minute of each group of methods.

Source: "Compute Engine rate quotas and system limits". They apply to the project, for all callers together. A
group is refilled when a minute of the clock begins, not continuously; a request beyond it is refused with 403,
rateLimitExceeded. Minutes are market time, because polling programs use market time: a local cloud twelve times as fast
gets twelve times as many requests. The table of that page has more groups, and counts global methods and the methods of
each region separately; here they count together, with the usual 1,500 requests. Other products' quotas are missing.
"""

import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime

from everspot_local.gcp.answers import ApiError
from everspot_local.market.quotas import Quota, Quotas

SERVICE = "compute-requests"
READ, LIST, OPERATIONS, CHANGE = "READ_REQUESTS", "LIST_REQUESTS", "OPERATION_READ_REQUESTS", "DEFAULT_REQUESTS"
DEFAULTS = tuple(Quota(code, SERVICE, code, 1500) for code in (READ, LIST, OPERATIONS, CHANGE))


class Rates:
    """Counts the requests of each minute.

    Args:
        now: market time.
        quotas: those of now, with their values.
        number: the project's, for the refusal's words.
    """

    def __init__(self, now: Callable[[], datetime], quotas: Callable[[], Quotas], number: str) -> None:
        self._now, self._quotas, self._number = now, quotas, number
        self._lock = threading.Lock()
        self._minute: datetime | None = None
        self._request_counts: Counter[str] = Counter()

    def count(self, method: str) -> None:
        """Count a call of Compute's; calls of other products are not counted.

        Raises:
            ApiError: 403, where its group has none left for this minute.
        """
        if not method.startswith("compute."):
            return
        code, minute = rate_group(method), self._now().replace(second=0, microsecond=0)
        limit = next(self._quotas().value(quota) for quota in DEFAULTS if quota.code == code)
        with self._lock:
            if minute != self._minute:
                self._minute, self._request_counts = minute, Counter()
            if self._request_counts[code] >= limit:
                raise self._beyond(code, limit)
            self._request_counts[code] += 1

    def _beyond(self, code: str, limit: float) -> ApiError:
        metric = f"compute.googleapis.com/{code.lower().removesuffix('_requests') if code == CHANGE else code.lower()}"
        message = (
            f"Quota exceeded for quota metric '{metric}' and limit '{metric} per minute' of service "
            f"'compute.googleapis.com' for consumer 'project_number:{self._number}'."
        )
        detail = {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "RATE_LIMIT_EXCEEDED",
            "domain": "googleapis.com",
            "metadata": {
                "service": "compute.googleapis.com",
                "quota_metric": metric,
                "quota_limit_value": f"{limit:g}",
            },
        }
        return ApiError(403, "rateLimitExceeded", message, domain="usageLimits", details=[detail])


def rate_group(method: str) -> str:
    """Return a method's group, by its id."""
    verb = method.rpartition(".")[2]
    if "Operations." in method and verb in ("get", "wait"):
        return OPERATIONS
    if verb.startswith(("list", "aggregatedList")):
        return LIST
    return READ if verb.startswith("get") else CHANGE
