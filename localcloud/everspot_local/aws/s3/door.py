"""Stands in for S3's front end: identifies the caller, and checks that a request is signed for the bucket's region.

It knows no anonymous access to public buckets: no bucket here is public.
"""

from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from moto.core.common_types import TYPE_RESPONSE
from moto.s3.models import FakeBucket, PublicAccessBlock, s3_backends
from moto.s3.responses import S3Response

from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.s3 import rules as s3_rules
from everspot_local.aws.s3.rules import S3Refused
from everspot_local.aws.signatures import signed_region
from everspot_local.aws.strict import strict

_bucket_response = S3Response._bucket_response
_key_response = S3Response._key_response


def bucket_response(handler: S3Response, request: Any, full_url: str) -> Any:
    """Answer a request about a bucket as moto does, after the checks."""
    query = parse_qs(urlsplit(full_url).query, keep_blank_values=True)
    creating = request.method == "PUT" and not query
    # Creating a bucket that exists elsewhere, and asking where it is, do not depend on the signature's region.
    refused = _refused(handler, request, full_url, anywhere=creating or "location" in query)
    if refused is not None:
        return refused
    existing = _bucket(handler)
    try:
        if strict() and request.method == "PUT":
            _check_bucket_write(handler, request, query, existing)
        if strict() and request.method == "POST" and "delete" in query:
            s3_rules.check_deletion(request.get_data())
        answer = _bucket_response(handler, request, full_url)
    except S3Refused as error:
        return _answer(request, error.status, error.code, error.message, existing.region_name if existing else "")
    if existing is None and creating and (created := _bucket(handler)) is not None and strict():
        # As every new bucket since April 2023: nothing public, no access control lists.
        created.public_access_block = PublicAccessBlock(True, True, True, True)
        ownership: Any = (
            created.ownership_rule or "BucketOwnerEnforced"
        )  # moto calls it a document; it is the rule's name
        created.ownership_rule = ownership
    return answer


def key_response(handler: S3Response, request: Any, full_url: str) -> TYPE_RESPONSE:
    """Answer a request about an object as moto does, after the checks."""
    refused = _refused(handler, request, full_url, anywhere=False)
    if refused is not None:
        return refused
    bucket = _bucket(handler)
    if bucket is not None and strict():
        try:
            _check_key_write(request, full_url, bucket)
        except S3Refused as error:
            return _answer(request, error.status, error.code, error.message, bucket.region_name)
    return _key_response(handler, request, full_url)


def _check_bucket_write(handler: S3Response, request: Any, query: dict[str, Any], bucket: FakeBucket | None) -> None:
    if bucket is None:
        if not query:
            s3_rules.check_name(handler.bucket_name)
        return
    if "policy" in query:
        s3_rules.check_policy(bucket, handler.body.decode("utf-8", "replace"))
    elif "tagging" in query:
        s3_rules.check_tags({k: v or "" for k, v in handler._bucket_tagging_from_body().items()}, s3_rules.BUCKET_TAGS)
    elif "acl" in query:
        s3_rules.check_acl(bucket, request.headers.get("x-amz-acl"))


def _check_key_write(request: Any, full_url: str, bucket: FakeBucket) -> None:
    query = parse_qs(urlsplit(full_url).query, keep_blank_values=True)
    puts = request.method == "PUT" and not query.keys() - {"x-id"}
    if (puts or (request.method == "PUT" and "partNumber" in query)) and "x-amz-copy-source" not in request.headers:
        s3_rules.check_body(request.environ, request.headers, request.get_data())
    if puts or (request.method == "POST" and "uploads" in query):
        s3_rules.check_object(unquote(urlsplit(full_url).path.split("/", 2)[-1]), request.headers)
        s3_rules.check_key(bucket, request.headers)
        s3_rules.check_acl(bucket, request.headers.get("x-amz-acl"))
        tags = parse_qs(request.headers.get("x-amz-tagging") or "", keep_blank_values=True)
        s3_rules.check_tags({key: values[0] for key, values in tags.items()}, s3_rules.OBJECT_TAGS)


def _bucket(handler: S3Response) -> FakeBucket | None:
    return s3_backends[ACCOUNT]["aws"].buckets.get(handler.bucket_name)


def _refused(handler: S3Response, request: Any, full_url: str, *, anywhere: bool) -> TYPE_RESPONSE | None:
    bucket = _bucket(handler)
    if bucket is None or not strict():
        return None
    region = signed_region(request.headers, full_url)
    if region is None:
        if not _signed_otherwise(request, full_url):
            return _answer(request, 403, "AccessDenied", "Access Denied", bucket.region_name)
        return None
    if region == bucket.region_name or anywhere:
        return None
    code, signed_part = "AuthorizationHeaderMalformed", "authorization header"
    if "Authorization" not in request.headers:
        code, signed_part = "AuthorizationQueryParametersError", "X-Amz-Credential parameter"
    message = f"The {signed_part} is malformed; the region '{region}' is wrong; expecting '{bucket.region_name}'"
    return _answer(request, 400, code, message, bucket.region_name, f"<Region>{bucket.region_name}</Region>")


def _signed_otherwise(request: Any, full_url: str) -> bool:
    return "Authorization" in request.headers or "Signature=" in full_url


def _answer(request: Any, status: int, code: str, message: str, region: str, more: str = "") -> TYPE_RESPONSE:
    """Add the bucket's region to every answer, as S3 does, and leave out the body of answers to HEAD."""
    headers = {"Content-Type": "application/xml", **({"x-amz-bucket-region": region} if region else {})}
    if request.method == "HEAD":
        return status, headers, ""
    body = f"<Code>{code}</Code><Message>{escape(message)}</Message>{more}<RequestId>local</RequestId>"
    return status, headers, f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{body}</Error>'
