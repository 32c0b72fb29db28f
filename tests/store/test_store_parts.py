"""Large objects are uploaded in at most as many parts as the clouds accept."""

import math
from pathlib import Path

import boto3
import pytest
from everspot_store import Store, StoreError, cloud
from everspot_store.cloud import Parts

MIB, GIB, TIB = 2**20, 2**30, 2**40


@pytest.mark.parametrize(
    "size", [16 * MIB + 1, 100 * GIB, 10_000 * 16 * MIB, 10_000 * 16 * MIB + 1, 200 * GIB, 700 * GIB + 7, 5 * TIB]
)
def test_an_object_of_any_size_has_parts_that_the_clouds_take(size: int) -> None:
    parts = Parts.for_object("datasets/large", size)
    assert math.ceil(size / parts.bytes) <= 10_000
    assert 5 * MIB <= parts.bytes <= 5 * GIB
    assert parts.bytes * parts.in_flight <= 2 * GIB, "what is in memory at once"
    assert parts.bytes == 16 * MIB or size > 156 * GIB


def test_an_object_that_no_cloud_holds_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(StoreError, match="has 5,497,558,138,881 bytes; an object holds 5,497,558,138,880"):
        Parts.for_object("datasets/large", 5 * TIB + 1)


def test_an_object_beyond_the_most_parts_goes_up_in_larger_ones_and_comes_back(
    s3_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aws: str
) -> None:
    """With a limit of three parts in place of ten thousand."""
    monkeypatch.setattr(cloud, "_MOST_PIECES", 3)
    monkeypatch.setattr(cloud, "_PIECE", 5 * MIB)
    content = bytes(range(256)) * (20 * MIB // 256) + b"end"
    (tmp_path / "large").write_bytes(content)
    stored = s3_store.data.upload("datasets/file", tmp_path / "large")
    s3_store.data.upload_view("datasets/view", memoryview(content))
    bucket = s3_store.data.url.removeprefix("s3://").partition("?")[0]
    client = boto3.client("s3", endpoint_url=aws, region_name="eu-west-1")
    for key in ("datasets/file", "datasets/view"):
        answer = client.head_object(Bucket=bucket, Key=key)
        assert answer["ETag"].strip('"').endswith("-3"), "parts of 7 MiB"
        assert answer["ContentLength"] == len(content)
        assert s3_store.data.download(key, tmp_path / "back") == stored.sha256
