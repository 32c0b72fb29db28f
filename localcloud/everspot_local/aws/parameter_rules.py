"""Stands in for limits of KMS, Systems Manager and CloudWatch that are not in their API models.

Sources: KMS API Reference, "PutKeyPolicy" (the lockout check), "ScheduleKeyDeletion", "Key states of KMS keys"; Systems
Manager API Reference, "PutParameter" (a standard parameter has at most 4 KB); CloudWatch API Reference,
"PutMetricData", "MetricDatum", "Dimension".
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.kms.models import kms_backends

from everspot_local.aws import account
from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.iam.policy_language import Call, PolicyDecision, UnknownCondition, decide
from everspot_local.aws.refusals import Refused
from everspot_local.aws.strict import strict

PENDING_DAYS = range(7, 31)
PARAMETER_BYTES = 4096
DATA, DIMENSIONS = 1000, 30
OLDEST, NEWEST = timedelta(days=14), timedelta(hours=2)
USES = ("Encrypt", "Decrypt", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext", "ReEncrypt", "CreateGrant")


def check_parameters(service: str, action: str, parameters: Mapping[str, Any], region: str) -> None:
    """Refuse what the service refuses beyond its model.

    Raises:
        Refused: by the service's own code.
    """
    if not strict():
        return
    if service == "kms":
        _check_kms(action, parameters, region)
    elif service == "ssm" and action == "PutParameter":
        _check_parameter(parameters)
    elif service == "cloudwatch" and action == "PutMetricData":
        _check_metrics(parameters)


def _check_kms(action: str, parameters: Mapping[str, Any], region: str) -> None:
    if action == "ScheduleKeyDeletion":
        days = parameters.get("PendingWindowInDays")
        if days is not None and int(days) not in PENDING_DAYS:
            raise Refused("ValidationException", "PendingWindowInDays must be between 7 and 30 days, inclusive.")
    policy = parameters.get("Policy")
    if action in ("CreateKey", "PutKeyPolicy") and policy and not parameters.get("BypassPolicyLockoutSafetyCheck"):
        _check_lockout(str(policy))
    if action in USES:
        _check_usable(str(parameters.get("KeyId") or ""), region)


def _check_lockout(policy: str) -> None:
    """Refuse a key policy that does not let its author change it again."""
    root = f"arn:aws:iam::{ACCOUNT}:root"
    try:
        document = json.loads(policy)
        allowed = decide([document], Call("kms:PutKeyPolicy"), principal=root) is PolicyDecision.ALLOW
    except UnknownCondition:
        allowed = False
    except (ValueError, KeyError, TypeError):
        raise Refused("MalformedPolicyDocumentException", "The policy is not a valid document.") from None
    if not allowed:
        message = "The new key policy will not allow you to update the key policy in the future."
        raise Refused("MalformedPolicyDocumentException", message)


def _check_usable(key_id: str, region: str) -> None:
    keys = kms_backends[ACCOUNT][region]
    name = key_id.rpartition(":")[2].removeprefix("key/")
    key = keys.keys.get((keys.get_key_id_from_alias(name) or "") if name.startswith("alias/") else name)
    if key is not None and key.key_state == "PendingDeletion":
        raise Refused("KMSInvalidStateException", f"{key.arn} is pending deletion.")


def _check_parameter(parameters: Mapping[str, Any]) -> None:
    size, tier = len(str(parameters.get("Value") or "").encode()), parameters.get("Tier") or "Standard"
    if tier == "Standard" and size > PARAMETER_BYTES:
        raise Refused(
            "ValidationException",
            f"Standard tier parameters support a maximum parameter value of {PARAMETER_BYTES} characters. To create a "
            "larger parameter value, upgrade the parameter to use the advanced-parameter tier.",
        )


def _check_metrics(parameters: Mapping[str, Any]) -> None:
    data = parameters.get("MetricData") or []
    if str(parameters.get("Namespace") or "").startswith("AWS/"):
        raise Refused("InvalidParameterValue", "The value AWS/ for parameter Namespace is invalid.")
    if len(data) > DATA:
        raise Refused("InvalidParameterValue", f"The collection MetricData must not have a size greater than {DATA}.")
    now = account.current().market.clock.now()
    for number, datum in enumerate(data, 1):
        if len(datum.get("Dimensions") or []) > DIMENSIONS:
            message = f"The collection MetricData.member.{number}.Dimensions must not have a size greater than"
            raise Refused("InvalidParameterValue", f"{message} {DIMENSIONS}.")
        at = datum.get("Timestamp")
        if isinstance(at, datetime):
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
            if not now - OLDEST <= at <= now + NEWEST:
                message = f"The parameter MetricData.member.{number}.Timestamp must specify a time"
                raise Refused("InvalidParameterValue", f"{message} within the past two weeks and two hours ahead.")
