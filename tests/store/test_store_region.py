"""A bucket's region comes from its URL or from S3, never from the environment."""

from collections.abc import Iterator
from uuid import uuid4

import boto3
import pytest
from everspot_core.cluster.manifest import Manifest
from everspot_local.cloud import LocalCloud
from everspot_local.options import Options
from everspot_store import Bucket, ManualClock, Store, StoreError, StoreMissing, StoreUnavailable, region

HOME, ELSEWHERE = "eu-west-1", "us-west-2"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    options = Options(state_dir=tmp_path_factory.mktemp("region"), region=HOME, boot_command=None)
    with LocalCloud(options) as cloud:
        yield cloud


@pytest.fixture
def bucket(cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket in HOME, seen from a machine whose environment names another region."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, ELSEWHERE)
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    name = f"everspot-{uuid4().hex[:12]}"
    client = boto3.client("s3", region_name=HOME, endpoint_url=cloud.endpoint)
    client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": HOME})
    client.close()
    return name


def test_the_region_of_the_url_wins_over_the_environment(bucket: str, clock: ManualClock) -> None:
    opened = Bucket.open(f"s3://{bucket}/deep?region={HOME}", clock=clock)
    opened.put("k", b"1")
    assert [e.key for e in Bucket.open(f"s3://{bucket}?region={HOME}", clock=clock).list()] == ["deep/k"]
    assert opened.url == f"s3://{bucket}/deep"


def test_a_url_without_a_region_asks_s3_once_and_needs_no_credentials(
    bucket: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as stranger:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            stranger.delenv(name)
        assert region.region_of_bucket(bucket) == HOME
    requests = []
    monkeypatch.setattr(region, "_request_region", lambda *words: requests.append(words))
    Bucket.open(f"s3://{bucket}", clock=clock).put("k", b"1")
    Bucket.open(f"s3://{bucket}/prefix", clock=clock).put("k", b"1")
    assert requests == []


def test_a_wrong_region_is_one_sentence_that_names_the_right_one(bucket: str, clock: ManualClock) -> None:
    wrong = Bucket.open(f"s3://{bucket}?region={ELSEWHERE}", clock=clock)
    for call in (lambda: wrong.put("k", b""), lambda: wrong.get("k"), wrong.list, lambda: wrong.create("k", b"")):
        with pytest.raises(StoreError, match=rf"s3://{bucket} lies in region {HOME}: its URL has to say so"):
            call()
    assert clock.slept == []


def test_a_manifest_tells_the_region_of_urls_that_do_not(bucket: str, clock: ManualClock) -> None:
    store = Store.open(f"s3://{bucket}?region={HOME}", f"s3://{bucket}?region={HOME}", clock=clock)
    manifest = Manifest(
        cluster="c", cloud="aws", region=HOME, control_url=f"s3://{bucket}", data_url=f"s3://{bucket}?region={HOME}"
    )
    store.write_manifest(manifest)
    read = Store.open(f"s3://{bucket}", clock=clock).manifest()
    assert (read.control_url, read.data_url) == (f"s3://{bucket}?region={HOME}",) * 2
    assert Manifest.read(read.to_json()) == read


def test_a_bucket_that_nobody_knows_and_an_s3_that_is_silent(
    bucket: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreMissing, match="everspot-nobody"):
        Bucket.open("s3://everspot-nobody", clock=clock)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreUnavailable, match="does not say where"):
        Bucket.open(f"s3://{bucket}", clock=clock)
    assert len(clock.slept) == 3, "bounded"
    silent = Bucket.open(f"s3://{bucket}?region={HOME}", clock=clock)
    with pytest.raises(
        StoreUnavailable,
        match=r"s3://\S+ does not answer \(GET k: error sending request: Connection refused, after [\d.]+ \S?s\)",
    ):
        silent.get("k")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://bucket?region=", "'' is no region"),
        ("s3://bucket?region=Ireland", "'Ireland' is no region"),
        ("s3://bucket?region=eu-west-1&region=eu-west-2", "once and nothing else"),
        ("s3://bucket?versions=all", "once and nothing else"),
        ("s3://?region=eu-west-1", "is no store"),
        ("gs://bucket?region=eu-west-1", "is no store"),
    ],
)
def test_what_else_a_url_may_not_say(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        Bucket.open(url)
