"""Stands in for S3's refusals of names, tags, policies and keys, each with S3's own error code.

A new bucket is as S3 makes it since April 2023: public access blocked, access control lists off ("Blocking public
access to your Amazon S3 storage", "Controlling ownership of objects").
"""

import base64
import hashlib
import ipaddress
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from moto.kms.models import kms_backends
from moto.s3.exceptions import S3ClientError
from moto.s3.models import FakeBucket

from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.iam.rules import absent_principals
from everspot_local.body_checks import CHECKSUMS, is_base64, length_is_missing, md5_fault

TAKEN = frozenset(
    {"backup", "bucket", "checkpoints", "datasets", "everspot", "ml-data", "my-bucket", "mybucket", "terraform-state",
     "test-bucket", "training"}
)  # fmt: skip
"""Bucket names that other accounts own: a sample of common names."""

BUCKET_TAGS, OBJECT_TAGS = 50, 10
KEY_BYTES, METADATA_BYTES, DELETED_AT_ONCE = 1024, 2048, 1000
_METADATA = "x-amz-meta-"
_SHA256_DIGITS = 64
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")
_SUFFIXES = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")
_TAG_TEXT = re.compile(r"[\w .:/=+\-@]*")
# A condition on one of these, with a value that is fixed, makes a statement not public.
_FIXING = {
    "aws:sourceip", "aws:sourcearn", "aws:sourcevpc", "aws:sourcevpce", "aws:sourceowner", "aws:sourceaccount",
    "aws:userid", "aws:principalorgid", "aws:principalarn", "aws:principalaccount", "aws:vpcsourceip",
    "s3:x-amz-server-side-encryption-aws-kms-key-id", "s3:dataaccesspointarn", "s3:dataaccesspointaccount",
}  # fmt: skip


class S3Refused(S3ClientError):
    """A request that S3 refuses with this error code. `status`: of the HTTP answer."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(code, message)
        self.status = status


def check_body(environ: Mapping[str, Any], headers: Mapping[str, str], data: bytes) -> None:
    """Refuse a body without a length, or one that does not match its digests ("Error responses":
    MissingContentLength, InvalidDigest, BadDigest, XAmzContentSHA256Mismatch; "PutObject" of each `x-amz-checksum-…`).
    CRC64NVME is not looked at, nor is a body that is sent in signed pieces, with the checksum behind it."""
    if length_is_missing(environ):
        raise S3Refused("MissingContentLength", "You must provide the Content-Length HTTP header.", 411)
    signed = headers.get("x-amz-content-sha256", "")
    if signed.startswith("STREAMING-"):
        return
    fault = md5_fault(headers["Content-MD5"], data) if "Content-MD5" in headers else ""
    if fault == "InvalidDigest":
        raise S3Refused(fault, "The Content-MD5 you specified was invalid.")
    if fault:
        raise S3Refused(fault, "The Content-MD5 you specified did not match what we received.")
    if len(signed) == _SHA256_DIGITS and signed != hashlib.sha256(data).hexdigest():
        raise S3Refused(
            "XAmzContentSHA256Mismatch",
            "The provided 'x-amz-content-sha256' header does not match what was computed.",
        )
    _check_checksums(headers, data)


def _check_checksums(headers: Mapping[str, str], data: bytes) -> None:
    for name, compute_checksum in CHECKSUMS.items():
        header = f"x-amz-checksum-{name}"
        stated = headers.get(header)
        if stated is None:
            continue
        checksum = compute_checksum(data)
        if not is_base64(stated, of_bytes=len(base64.b64decode(checksum))):
            raise S3Refused("InvalidRequest", f"Value for {header} header is invalid.")
        if stated != checksum:
            raise S3Refused("BadDigest", f"The {name.upper()} you specified did not match the calculated checksum.")


def check_name(name: str) -> None:
    """Refuse a name against "General purpose bucket naming rules", or one that another account has."""
    try:
        ipaddress.ip_address(name)
        address = True
    except ValueError:
        address = False
    reserved = name.startswith(_PREFIXES) or name.endswith(_SUFFIXES)
    if address or reserved or ".." in name or not _NAME.fullmatch(name):
        raise S3Refused("InvalidBucketName", "The specified bucket is not valid.")
    if name in TAKEN:
        raise S3Refused(
            "BucketAlreadyExists",
            "The requested bucket name is not available. The bucket namespace is shared by all users of the system. "
            "Please select a different name and try again.",
            409,
        )


def check_tags(tags: Mapping[str, str], limit: int) -> None:
    """Refuse tags that break "Using cost allocation S3 bucket tags" or "Categorizing your objects using tags"."""
    if len(tags) > limit:
        kind = "Bucket tag count" if limit == BUCKET_TAGS else "Object tags"
        raise S3Refused("BadRequest", f"{kind} cannot be greater than {limit}")
    for key, value in tags.items():
        if not 1 <= len(key) <= 128 or not _TAG_TEXT.fullmatch(key):
            raise S3Refused("InvalidTag", "The TagKey you have provided is invalid")
        if len(value) > 256 or not _TAG_TEXT.fullmatch(value):
            raise S3Refused("InvalidTag", "The TagValue you have provided is invalid")
        if key.lower().startswith("aws:"):
            raise S3Refused("InvalidTag", "System tags cannot be added/updated by requester")


def check_policy(bucket: FakeBucket, text: str) -> None:
    """Refuse a bucket policy that is invalid, that names other buckets, or that is public although that is blocked."""
    try:
        document = json.loads(text)
        statements = _list(document["Statement"])
    except (ValueError, KeyError, TypeError):
        raise S3Refused("MalformedPolicy", "Policies must be valid JSON and the first byte must be '{'") from None
    arn = f"arn:aws:s3:::{bucket.name}"
    for statement in statements:
        if "Principal" not in statement and "NotPrincipal" not in statement:
            raise S3Refused("MalformedPolicy", "Missing required field Principal")
        if absent_principals(statement):
            raise S3Refused("MalformedPolicy", "Invalid principal in policy")
        for resource in _list(statement.get("Resource", [])):
            if resource != arn and not resource.startswith(f"{arn}/"):
                raise S3Refused("MalformedPolicy", "Policy has invalid resource")
    blocked = bucket.public_access_block
    if blocked is not None and str(blocked.block_public_policy).lower() == "true" and any(map(_public, statements)):
        raise S3Refused(
            "AccessDenied",
            f"User: arn:aws:iam::{ACCOUNT}:root is not authorized to perform: s3:PutBucketPolicy on resource: "
            f'"{arn}" because public policies are blocked by the BlockPublicPolicy block public access setting.',
            403,
        )


def check_key(bucket: FakeBucket, headers: Mapping[str, str]) -> None:
    """Refuse a write whose KMS key does not exist or is disabled. S3 does not check the key when a bucket's default
    encryption is set (PutBucketEncryption says so), only at a write."""
    key = headers.get("x-amz-server-side-encryption-aws-kms-key-id")
    if key is None and headers.get("x-amz-server-side-encryption") in (None, "aws:kms"):
        key = _default_key(bucket)
    if not key or key.endswith("alias/aws/s3"):
        return
    region = key.split(":")[3] if key.startswith("arn:") else bucket.region_name
    if region != bucket.region_name:
        raise S3Refused("KMS.NotFoundException", f"Invalid arn {region}")
    keys = kms_backends[ACCOUNT][region]
    name = key.rpartition(":")[2].removeprefix("key/")
    kms_key = keys.keys.get((keys.get_key_id_from_alias(name) or "") if name.startswith("alias/") else name)
    if kms_key is None:
        raise S3Refused("KMS.NotFoundException", f"Key '{key}' does not exist")
    if not kms_key.enabled:
        raise S3Refused("KMS.DisabledException", f"{kms_key.arn} is disabled.")


def check_object(key: str, headers: Mapping[str, str]) -> None:
    """Refuse a name, user metadata or a condition that S3 does not take ("Naming Amazon S3 objects": 1,024 bytes;
    "Working with object metadata": 2 KB of keys and values; PutObject: `If-None-Match` takes `*` alone)."""
    if len(key.encode()) > KEY_BYTES:
        raise S3Refused("KeyTooLongError", "Your key is too long")
    metadata = [
        (name[len(_METADATA) :], value) for name, value in headers.items() if name.lower().startswith(_METADATA)
    ]
    if sum(len(name.encode()) + len(value.encode()) for name, value in metadata) > METADATA_BYTES:
        raise S3Refused("MetadataTooLarge", "Your metadata headers exceed the maximum allowed metadata size")
    if headers.get("If-None-Match") not in (None, "*"):
        message = "A header you provided implies functionality that is not implemented"
        raise S3Refused("NotImplemented", message, 501)


def check_deletion(body: bytes) -> None:
    """Refuse to delete more objects in one request than S3 accepts (DeleteObjects: 1,000 keys)."""
    if body.count(b"<Key>") > DELETED_AT_ONCE:
        raise S3Refused(
            "MalformedXML", "The XML you provided was not well-formed or did not validate against our schema"
        )


def check_acl(bucket: FakeBucket, canned: str | None) -> None:
    """Refuse access control lists where they are disabled, except lists that grant nothing to others."""
    ownership: Any = bucket.ownership_rule  # moto calls it a document; it is the rule's name
    if canned and canned not in ("private", "bucket-owner-full-control") and ownership == "BucketOwnerEnforced":
        raise S3Refused("AccessControlListNotSupported", "The bucket does not allow ACLs")


def _default_key(bucket: FakeBucket) -> str | None:
    rule = ((bucket.encryption or {}).get("Rule")) or {}
    rule = rule[0] if isinstance(rule, list) else rule
    default_rule = rule.get("ApplyServerSideEncryptionByDefault") or {}
    return default_rule.get("KMSMasterKeyID")


def _public(statement: Mapping[str, Any]) -> bool:
    """Return whether a statement makes the bucket public: "The meaning of public" in the S3 user guide."""
    if statement.get("Effect") != "Allow":
        return False
    stated = statement.get("Principal")
    principals = _list(stated) if not isinstance(stated, Mapping) else [p for ps in stated.values() for p in _list(ps)]
    return "*" in principals and not _fixed(statement.get("Condition", {}))


def _fixed(conditions: Mapping[str, Mapping[str, Any]]) -> bool:
    return any(
        key.lower() in _FIXING and not any("*" in str(value) or str(value).endswith("/0") for value in _list(values))
        for operator, keys in conditions.items()
        if "Not" not in operator and not operator.endswith("IfExists")
        for key, values in keys.items()
    )


def _list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else [value]
