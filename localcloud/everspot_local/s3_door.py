"""Stands in for S3's front end: whose request it is, and whether it was signed for the region of the bucket.

It knows no anonymous access to public buckets: no bucket here is public.
"""

from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

from moto.core.responses import TYPE_RESPONSE
from moto.s3.models import s3_backends
from moto.s3.responses import S3Response

from everspot_local.signatures import signed_region
from everspot_local.strict import strict
from everspot_local.world import ACCOUNT

_bucket_response = S3Response._bucket_response
_key_response = S3Response._key_response


def bucket_response(handler: S3Response, request: Any, full_url: str) -> Any:
    """moto's, behind the door."""
    asked = parse_qs(urlsplit(full_url).query, keep_blank_values=True)
    # Creating a bucket that exists elsewhere, and asking where it is, do not depend on the signature's region.
    anywhere = (request.method == "PUT" and not asked) or "location" in asked
    refused = _refused(handler, request, full_url, anywhere=anywhere)
    return refused if refused is not None else _bucket_response(handler, request, full_url)


def key_response(handler: S3Response, request: Any, full_url: str) -> TYPE_RESPONSE:
    """moto's, behind the door."""
    refused = _refused(handler, request, full_url, anywhere=False)
    return refused if refused is not None else _key_response(handler, request, full_url)


def _refused(handler: S3Response, request: Any, full_url: str, *, anywhere: bool) -> TYPE_RESPONSE | None:
    bucket = s3_backends[ACCOUNT]["aws"].buckets.get(handler.bucket_name)
    if bucket is None or not strict():
        return None
    region = signed_region(request.headers, full_url)
    if region is None:
        if not _signed_otherwise(request, full_url):
            return _answer(request, 403, "AccessDenied", "Access Denied", bucket.region_name)
        return None
    if region == bucket.region_name or anywhere:
        return None
    code, what = "AuthorizationHeaderMalformed", "authorization header"
    if "Authorization" not in request.headers:
        code, what = "AuthorizationQueryParametersError", "X-Amz-Credential parameter"
    said = f"The {what} is malformed; the region '{region}' is wrong; expecting '{bucket.region_name}'"
    return _answer(request, 400, code, said, bucket.region_name, f"<Region>{bucket.region_name}</Region>")


def _signed_otherwise(request: Any, full_url: str) -> bool:
    return "Authorization" in request.headers or "Signature=" in full_url


def _answer(request: Any, status: int, code: str, said: str, region: str, more: str = "") -> TYPE_RESPONSE:
    """S3 names the bucket's region whatever else it answers; to HEAD it says nothing but headers."""
    headers = {"x-amz-bucket-region": region, "Content-Type": "application/xml"}
    if request.method == "HEAD":
        return status, headers, ""
    body = f"<Code>{code}</Code><Message>{escape(said)}</Message>{more}<RequestId>local</RequestId>"
    return status, headers, f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{body}</Error>'
