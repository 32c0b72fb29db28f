"""Finds the region of an S3 bucket: from its URL, otherwise by asking S3.

A signature names a region, and S3 refuses every region but the bucket's. The environment's region is the user's default
and says nothing about the bucket, so it is never used.
"""

import http.client
import os
import re
import ssl
from datetime import timedelta
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qsl, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from everspot_core.cluster.manifest import Manifest

from everspot_store.certificates import trusting, untrusted
from everspot_store.errors import StoreError, StoreMissing, StoreUnavailable

GLOBAL_ENDPOINT = "https://s3.amazonaws.com"
_DOMAINS = {"cn-": "amazonaws.com.cn", "eusc-": "amazonaws.eu"}
"""The domains of partitions of AWS that do not have `amazonaws.com`, by the beginning of their regions (AWS General
Reference, "AWS service endpoints"). obstore does not know them."""
_HEADER = "x-amz-bucket-region"
_LIMIT = timedelta(seconds=10)
_REGION = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+")  # eu-west-1, us-gov-east-1
_regions: dict[tuple[str, str], str] = {}  # regions by endpoint and bucket; a bucket never moves


def split_region(url: str) -> tuple[str, str | None]:
    """Return `s3://bucket/prefix?region=eu-west-1` as the URL without its query, and the region or None.

    Raises:
        StoreError: if the query is anything but one region of AWS's form.
    """
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    plain = urlunsplit(parts._replace(query="", fragment=""))
    if not query and not parts.query:
        return plain, None
    names = [name for name, _ in query]
    if names != ["region"]:
        raise StoreError(f"{url!r} is no store: a URL takes ?region=… once and nothing else")
    if not _REGION.fullmatch(query[0][1]):
        raise StoreError(f"{url!r} is no store: {query[0][1]!r} is no region; write it as in ?region=eu-west-1")
    return plain, query[0][1]


def located(manifest: Manifest) -> Manifest:
    """Return the manifest with the region in its bucket URLs, for programs that get only a URL."""
    urls = {"control_url": manifest.control_url, "data_url": manifest.data_url}
    silent = {name: url for name, url in urls.items() if url.startswith("s3://") and "?" not in url}
    if not silent or not manifest.region:
        return manifest
    return manifest.model_copy(update={name: f"{url}?region={manifest.region}" for name, url in silent.items()})


def endpoint() -> str:
    """Return S3's endpoint of the standard environment, or an empty string for AWS's own."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def regional_endpoint(region: str) -> str:
    """Return S3's endpoint of a region whose services have a domain of their own, or an empty string."""
    domain = next((name for start, name in _DOMAINS.items() if region.startswith(start)), "")
    return f"https://s3.{region}.{domain}" if domain else ""


def region_of_bucket(bucket: str) -> str:
    """Return the bucket's region. S3 is asked once per bucket and process, in one attempt.

    No credentials are needed, because S3 names the region even in a refusal (HeadBucket: `x-amz-bucket-region`).

    Raises:
        StoreMissing: if there is no such bucket.
        StoreUnavailable: if S3 does not answer.
        StoreError: if the endpoint does not name the region.
    """
    host = endpoint() or GLOBAL_ENDPOINT
    if (host, bucket) not in _regions:
        _regions[host, bucket] = _request_region(host.rstrip("/"), bucket)
    return _regions[host, bucket]


class _Stay(HTTPRedirectHandler):
    """Does not follow redirects: they name the region too, and following one would cost a second request."""

    def redirect_request(self, *_: object) -> None:
        """Do not follow."""


def _request_region(host: str, bucket: str) -> str:
    request = Request(f"{host}/{bucket}", method="HEAD")  # noqa: S310 - https, or what the environment names
    try:
        with build_opener(_Stay(), HTTPSHandler(context=trusting(f"s3://{bucket}"))).open(
            request, timeout=_LIMIT.total_seconds()
        ) as answer:
            status, region = answer.status, answer.headers.get(_HEADER)
    except HTTPError as error:
        with error:
            status, region = error.code, error.headers.get(_HEADER)
    except (URLError, OSError, http.client.HTTPException, ssl.SSLError) as error:
        cause = error.reason if isinstance(error, URLError) else error
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise untrusted(f"s3://{bucket}", cause.verify_message) from error
        raise StoreUnavailable(f"{host} does not say where bucket {bucket} is: {error}") from error
    if region:
        return str(region)
    if status == 404:
        raise StoreMissing(f"bucket s3://{bucket} does not exist")
    if status >= 500:
        raise StoreUnavailable(f"{host} does not say where bucket {bucket} is: it answered {status}")
    raise StoreError(
        f"{host} answered {status} and does not say where bucket {bucket} is: write s3://{bucket}?region=…"
    )
