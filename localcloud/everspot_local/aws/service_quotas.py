"""Stands in for the Service Quotas API: returns the account's values. It accepts no requests for more."""

import json
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.servicequotas.responses import ServiceQuotasResponse

from everspot_local.aws import account
from everspot_local.aws.account import ACCOUNT
from everspot_local.market.quotas import Quota

PAGE = 100
NAMES = {"ec2": "Amazon Elastic Compute Cloud (Amazon EC2)", "vpc": "Amazon Virtual Private Cloud (Amazon VPC)"}


class NoSuchQuota(JsonRESTError):
    """No such service or quota exists here."""

    def __init__(self) -> None:
        super().__init__(
            "NoSuchResourceException", "The request failed because the specified quota does not exist or is unknown."
        )


def list_service_quotas(self: ServiceQuotasResponse) -> str:
    """Answer ListServiceQuotas, a page at a time."""
    request = json.loads(self.body)
    if (service := str(request.get("ServiceCode"))) not in NAMES:
        raise NoSuchQuota
    quotas = [_document(self, quota) for quota in account.current().market.quotas.all(service)]
    start = int(request.get("NextToken") or 0)
    size = min(int(request.get("MaxResults") or PAGE), PAGE)
    more = {"NextToken": str(start + size)} if start + size < len(quotas) else {}
    return json.dumps({"Quotas": quotas[start : start + size], **more})


def get_service_quota(self: ServiceQuotasResponse) -> str:
    """Answer GetServiceQuota."""
    quota = _requested_quota(self)
    return json.dumps({"Quota": _document(self, quota)})


def get_aws_default_service_quota(self: ServiceQuotasResponse) -> str:
    """Answer GetAWSDefaultServiceQuota: the value of an account that never requested another."""
    quota = _requested_quota(self)
    return json.dumps({"Quota": _document(self, quota) | {"Value": quota.value}})


def _requested_quota(handler: ServiceQuotasResponse) -> Quota:
    request = json.loads(handler.body)
    for quota in account.current().market.quotas.all(str(request.get("ServiceCode"))):
        if quota.code == request.get("QuotaCode"):
            return quota
    raise NoSuchQuota


def _document(handler: ServiceQuotasResponse, quota: Quota) -> dict[str, Any]:
    return {
        "ServiceCode": quota.service,
        "ServiceName": NAMES[quota.service],
        "QuotaArn": f"arn:aws:servicequotas:{handler.region}:{ACCOUNT}:{quota.service}/{quota.code}",
        "QuotaCode": quota.code,
        "QuotaName": quota.name,
        "Value": account.current().market.quotas.value(quota),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
