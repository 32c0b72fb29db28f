"""Stands in for the part of Signature Version 4 that keeps regions apart: a request signed for one region is refused in
another. The signature itself is not checked.

The local endpoint is the endpoint of the local cloud's region for every service but the global ones, and for S3, whose
buckets each say where they are.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from everspot_local.aws.refusals import Refused
from everspot_local.aws.strict import strict

# One endpoint for all regions, or a few that serve all: STS has regional ones too, and takes either here; price lists
# are served in us-east-1, eu-central-1 and ap-south-1 only; budgets and Cost Explorer in us-east-1.
GLOBAL = {"budgets", "ce", "iam", "sts", "pricing"}
_SCOPE = re.compile(r"Credential=[^/,\s]+/\d{8}/([^/]+)/([^/]+)/aws4_request")
_QUERY_SCOPE = re.compile(r"[^/]+/\d{8}/([^/]+)/[^/]+/aws4_request")


def signed_region(headers: Mapping[str, str], url: str = "") -> str | None:
    """Return the region of a request's credential scope, from its header or a presigned URL; None if it is not
    signed."""
    scope_match = _SCOPE.search(headers.get("Authorization") or "")
    if scope_match is None and "X-Amz-Credential" in url:
        scope_match = _QUERY_SCOPE.search(parse_qs(urlsplit(url).query).get("X-Amz-Credential", [""])[0])
    return scope_match[1] if scope_match else None


def check_region(handler: Any, service: str, endpoint_region: str) -> None:
    """Refuse a request to a regional service that is signed for another region than its endpoint's.

    EC2 answers AuthFailure, services that speak JSON InvalidSignatureException, the others SignatureDoesNotMatch: each
    service's common errors, and "Elements of an AWS API request signature" in the IAM user guide.
    """
    region = signed_region(handler.headers)
    if service in GLOBAL or region in (None, endpoint_region) or not strict():
        return
    message = f"Credential should be scoped to a valid region, not '{region}'."
    if service == "ec2":
        raise Refused("AuthFailure", message, 401)
    if "json" in handler.headers.get("Content-Type", ""):
        raise Refused("InvalidSignatureException", message, 400)
    raise Refused("SignatureDoesNotMatch", message, 403)
