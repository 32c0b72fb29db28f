"""Corrects an answer of moto's S3, after which the upstream provider would plan a change that is none."""

from typing import Any

import xmltodict
from moto.s3.responses import S3Response

_bucket_response_put = S3Response._bucket_response_put


def bucket_response_put(handler: S3Response, request: Any, bucket_name: str, querystring: dict[str, Any]) -> Any:
    """CreateBucket sets the tags that it is given; moto drops them."""
    answer = _bucket_response_put(handler, request, bucket_name, querystring)
    if handler.body and not querystring:
        asked = xmltodict.parse(handler.body, force_list={"Tag": True}).get("CreateBucketConfiguration") or {}
        tags = {tag["Key"]: tag["Value"] or "" for tag in (asked.get("Tags") or {}).get("Tag", [])}
        if tags:
            handler.backend.put_bucket_tagging(bucket_name, tags)
    return answer
