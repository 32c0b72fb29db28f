"""Stands in for the Service Authorization Reference of Amazon S3: the actions that a request has to be allowed, and the
resources that they are checked on.

Sources: Amazon S3 User Guide, "Required permissions for Amazon S3 API operations"; the section "Permissions" of each
operation in the API reference.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote
from xml.parsers.expat import ExpatError

import xmltodict
from moto.s3.exceptions import MalformedXML, NoSuchUpload
from moto.s3.models import s3_backends

from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.iam.policy_language import Call, Context

# Actions whose permission has another name than the call.
ACTIONS = {"HeadBucket": "ListBucket", "HeadObject": "GetObject"}
# What moto does not tell apart by its name: a bucket's parts by their parameter. Who takes one away puts it.
BUCKET_PARTS = {
    "accelerate": "AccelerateConfiguration",
    "encryption": "EncryptionConfiguration",
    "object-lock": "BucketObjectLockConfiguration",
    "ownershipcontrols": "BucketOwnershipControls",
    "publicaccessblock": "BucketPublicAccessBlock",
    "replication": "ReplicationConfiguration",
    "requestpayment": "BucketRequestPayment",
}
OBJECT_PARTS = {
    "acl": "Acl",
    "attributes": "Attributes",
    "legal-hold": "LegalHold",
    "retention": "Retention",
    "tagging": "Tagging",
    "torrent": "Torrent",
}
"""An object's parts by their parameter."""
OF_VERSIONS = frozenset({"Acl", "Attributes", "Tagging", "Torrent"})
"""Parts whose permission has another name where a version is named."""
VERBS = {"GET": "Get", "HEAD": "Get", "PUT": "Put", "DELETE": "Delete"}
WRITTEN_WITH = {
    "x-amz-tagging": "PutObjectTagging",
    "x-amz-acl": "PutObjectAcl",
    "x-amz-grant-": "PutObjectAcl",
    "x-amz-object-lock-legal-hold": "PutObjectLegalHold",
    "x-amz-object-lock-mode": "PutObjectRetention",
    "x-amz-object-lock-retain-until-date": "PutObjectRetention",
}
"""What a write does beside it, by the beginnings of its headers (PutObject, CopyObject, CreateMultipartUpload)."""


def s3_calls(handler: Any, action: str, resource: str, context: Context) -> Iterator[Call]:
    """Yield every action on every resource that must be allowed for one request to S3."""
    action = ACTIONS.get(action, action)
    query: Mapping[str, Any] = handler.querystring or {}
    if "/" in resource.rpartition(":")[2]:
        yield from _object_calls(handler, action, resource, query, context)
        return
    lowered = {name.lower() for name in query}
    part = next((name for key, name in BUCKET_PARTS.items() if key in lowered), None)
    if part is not None:
        yield Call(f"s3:{'Get' if handler.method == 'GET' else 'Put'}{part}", resource, context)
    elif action == "ListBucket":
        prefix = query.get("prefix")  # names of parameters have one case: a listing by `Prefix` has no prefix
        if prefix:
            context = {**context, "s3:prefix": (str(prefix[0] if isinstance(prefix, list) else prefix),)}
        yield Call("s3:ListBucket", resource, context)
    elif action == "DeleteObject":
        yield from _deletions(handler.raw_body, resource, context)
    else:
        yield Call(f"s3:{action}", resource, context)


def check_upload(handler: Any, bucket: str | None, key: str | None) -> None:
    """Refuse a multipart upload that is not of the key that the request names, as one that does not exist.

    Raises:
        NoSuchUpload: if it is of another key.
    """
    names = (handler.querystring or {}).get("uploadId")
    if not bucket or not key or not names:
        return
    name = str(names[0] if isinstance(names, list) else names)
    fake_bucket = s3_backends[ACCOUNT]["aws"].buckets.get(bucket)
    upload = fake_bucket.multiparts.get(name) if fake_bucket is not None else None
    if upload is not None and upload.key_name != key:
        raise NoSuchUpload(upload_id=name)


def _object_calls(
    handler: Any, action: str, resource: str, query: Mapping[str, Any], context: Context
) -> Iterator[Call]:
    version = "Version" if "versionId" in query else ""
    part = next((name for key, name in OBJECT_PARTS.items() if key in query), None)
    if part is not None and handler.method in VERBS:
        of_version = version if part in OF_VERSIONS else ""
        yield Call(f"s3:{VERBS[handler.method]}Object{of_version}{part}", resource, context)
        if part != "Attributes":
            return
        action = "GetObject"  # its attributes are of those who may read it
    yield Call(f"s3:{action}{version if action == 'GetObject' else ''}", resource, context)
    if source := handler.headers.get("x-amz-copy-source"):
        path, _, source_version = str(source).partition("?")
        read = "s3:GetObjectVersion" if source_version else "s3:GetObject"
        yield Call(read, f"arn:aws:s3:::{unquote(path).lstrip('/')}", context)
    if action == "PutObject":
        headers = [str(name).lower() for name, _ in handler.headers.items()]
        further_actions = {
            name for start, name in WRITTEN_WITH.items() if any(header.startswith(start) for header in headers)
        }
        yield from (Call(f"s3:{name}", resource, context) for name in sorted(further_actions))
    if action == "GetObject" and not _exists(resource):
        # S3 tells who may not list a bucket 403 instead of 404.
        yield Call("s3:ListBucket", resource.partition("/")[0], context)


def _deletions(body: bytes, resource: str, context: Context) -> Iterator[Call]:
    """Yield the deletions of DeleteObjects, read as moto reads them."""
    try:
        objects = xmltodict.parse(body, strip_whitespace=False)["Delete"]["Object"]
        keys = [(each["Key"], each.get("VersionId")) for each in (objects if isinstance(objects, list) else [objects])]
    except (ExpatError, KeyError, TypeError, AttributeError):
        raise MalformedXML from None
    for key, version in keys:
        yield Call(f"s3:DeleteObject{'Version' if version else ''}", f"{resource}/{key}", context)


def _exists(resource: str) -> bool:
    bucket, _, key = resource.rpartition(":")[2].partition("/")
    fake_bucket = s3_backends[ACCOUNT]["aws"].buckets.get(bucket)
    return fake_bucket is None or fake_bucket.keys.get(key) is not None
