"""Google's error codes, grouped by the possible reaction."""

from typing import Any

import pytest
import requests
from everspot_clouds.base import Trouble
from everspot_clouds.gcp.errors import (
    ApiError,
    StillUnderWay,
    classify_code,
    launch_trouble,
    refused,
    to_cloud_error,
    trouble,
)
from everspot_core.capacity.launching import LaunchTrouble
from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError


def answer(status: int, reason: str = "", code: str = "", info: str = "", message: str = "no") -> ApiError:
    """A refusal as an API writes it."""
    error: dict[str, Any] = {"code": status, "message": message}
    if reason:
        error["errors"] = [{"message": message, "domain": "global", "reason": reason}]
    if code:
        error["status"] = code
    if info:
        error["details"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": info, "domain": "g"}]
    return refused(status, {"error": error})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (answer(403, "quotaExceeded"), Trouble.QUOTA),
        (answer(403, "rateLimitExceeded"), Trouble.THROTTLED),
        (answer(403, "forbidden", "PERMISSION_DENIED", "RATE_LIMIT_EXCEEDED"), Trouble.THROTTLED),
        (answer(429, "", "RESOURCE_EXHAUSTED"), Trouble.THROTTLED),
        (answer(403, "forbidden"), Trouble.CREDENTIALS),
        (answer(401, "authError", "UNAUTHENTICATED"), Trouble.CREDENTIALS),
        (answer(403, "accessNotConfigured", "", "SERVICE_DISABLED"), Trouble.CREDENTIALS),
        (answer(400, "invalid"), Trouble.REQUEST),
        (answer(412, "conditionNotMet"), Trouble.REQUEST),
        (answer(404, "notFound"), Trouble.REQUEST),
        (answer(409, "alreadyExists"), Trouble.REQUEST),
        (answer(400, "resourceNotReady"), Trouble.TRANSIENT),
        (answer(503, "backendError"), Trouble.TRANSIENT),
        (answer(500), Trouble.TRANSIENT),
        (answer(418), Trouble.REQUEST),
        (refused(502, "<html>"), Trouble.TRANSIENT),
        (refused(400, {"error": "invalid_grant", "error_description": "expired"}), Trouble.CREDENTIALS),
        (StillUnderWay("20 s"), Trouble.TRANSIENT),
        (RefreshError("gone"), Trouble.CREDENTIALS),
        (DefaultCredentialsError("none"), Trouble.CREDENTIALS),
        (TransportError("no route"), Trouble.TRANSIENT),
        (requests.ConnectionError("refused"), Trouble.TRANSIENT),
        (requests.Timeout("late"), Trouble.TRANSIENT),
        (KeyError("id"), Trouble.REQUEST),
    ],
)
def test_every_failure_has_a_kind(error: Exception, kind: Trouble) -> None:
    assert trouble(error) is kind


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (answer(403, "accessNotConfigured", "", "SERVICE_DISABLED"), "pulumi up -s gcp-account"),
        (answer(403, "forbidden", "PERMISSION_DENIED", "BILLING_DISABLED"), "link one"),
        (answer(403, "forbidden"), "gcloud auth application-default login"),
        (answer(403, "rateLimitExceeded"), "try again in a minute"),
    ],
)
def test_a_person_is_told_what_helps_against_this_very_refusal(error: Exception, words: str) -> None:
    assert words in to_cloud_error(error).fix


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", LaunchTrouble.CAPACITY),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", LaunchTrouble.CAPACITY),
        ("REGION_RESOURCE_POOL_EXHAUSTED", LaunchTrouble.CAPACITY),
        ("RESOURCE_POOL_EXHAUSTED", LaunchTrouble.CAPACITY),
        ("GPU_STOCKOUT", LaunchTrouble.CAPACITY),
        ("insufficientCapacity", LaunchTrouble.CAPACITY),
        ("UNSUPPORTED_OPERATION", LaunchTrouble.REQUEST),
        ("QUOTA_EXCEEDED", LaunchTrouble.QUOTA),
        ("quotaExceeded", LaunchTrouble.QUOTA),
        ("CONDITION_NOT_MET", LaunchTrouble.REQUEST),
        ("INVALID_FIELD_VALUE", LaunchTrouble.REQUEST),
        ("INVALID_USAGE", LaunchTrouble.REQUEST),
        ("RESOURCE_NOT_FOUND", LaunchTrouble.REQUEST),
        ("UNSUPPORTED_ANYTHING", LaunchTrouble.REQUEST),
        ("PERMISSIONS_ERROR", LaunchTrouble.CREDENTIALS),
        ("SERVICE_ACCOUNT_ACCESS_DENIED", LaunchTrouble.CREDENTIALS),
        ("RESOURCE_OPERATION_RATE_EXCEEDED", LaunchTrouble.THROTTLED),
        ("INTERNAL_ERROR", LaunchTrouble.TRANSIENT),
        ("NEVER_HEARD_OF", LaunchTrouble.TRANSIENT),
    ],
)
def test_the_code_of_an_operation_says_what_can_be_done(code: str, kind: LaunchTrouble) -> None:
    assert launch_trouble(code) is kind


def test_an_unsupported_operation_is_a_drought_only_if_the_machine_was_preempted() -> None:
    for message in ("Instance failed to start due to preemption.", "The VM was preempted"):
        assert launch_trouble("UNSUPPORTED_OPERATION", message) is LaunchTrouble.CAPACITY
    wrong = "e2 instances do not support onHostMaintenance=TERMINATE unless they are preemptible."
    assert launch_trouble("UNSUPPORTED_OPERATION", wrong) is LaunchTrouble.REQUEST
    assert trouble(answer(400, "unsupportedOperation", message=wrong)) is Trouble.REQUEST


def test_spelling_does_not_count() -> None:
    assert (
        classify_code("quota-exceeded")
        is classify_code("QuotaExceeded")
        is classify_code("QUOTA_EXCEEDED")
        is Trouble.QUOTA
    )
    assert classify_code("whatever") is None


def test_people_are_told_what_was_refused_and_what_to_do() -> None:
    error = to_cloud_error(answer(403, "quotaExceeded", message="Quota 'CPUS' exceeded"))
    assert str(error) == "Google Cloud refused: quotaExceeded: Quota 'CPUS' exceeded"
    assert "iam-admin/quotas" in error.fix
    assert answer(404, "notFound").missing and answer(409, "alreadyExists").exists
    assert not answer(409, "resourceInUseByAnotherResource").exists
