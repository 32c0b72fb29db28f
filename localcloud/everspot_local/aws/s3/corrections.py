"""Corrects moto's S3 where its answers differ from AWS's and the upstream provider would fail."""

from typing import Any

import xmltodict
from moto.s3.models import FakeDeleteMarker
from moto.s3.responses import S3Response

from everspot_local.aws.s3 import rules as s3_rules
from everspot_local.aws.strict import strict

_bucket_response_put = S3Response._bucket_response_put


def bucket_response_put(handler: S3Response, request: Any, bucket_name: str, querystring: dict[str, Any]) -> Any:
    """Create a bucket with the tags of the request, which moto ignores."""
    tags: dict[str, str] = {}
    if handler.body and not querystring:
        configuration = xmltodict.parse(handler.body, force_list={"Tag": True}).get("CreateBucketConfiguration") or {}
        tags = {tag["Key"]: tag["Value"] or "" for tag in (configuration.get("Tags") or {}).get("Tag", [])}
        if strict():
            s3_rules.check_tags(tags, s3_rules.BUCKET_TAGS)
    answer = _bucket_response_put(handler, request, bucket_name, querystring)
    if tags:
        handler.backend.put_bucket_tagging(bucket_name, tags)
    return answer


def dispose(self: FakeDeleteMarker, garbage: bool = False) -> None:
    """Do nothing for a delete marker, which has no content. moto lacks this method, so that it cannot empty a bucket
    whose versioning was suspended, as a destroy does."""
