"""The metadata client against a metadata service that misbehaves."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from agent_helpers import MetadataServer, metadata_pages
from everspot_clouds.aws.metadata import ATTEMPTS, TOKEN_TTL, ImdsClient, ImdsMetadata, endpoint_from
from everspot_clouds.base import Identity, MetadataError, MetadataUnavailable
from everspot_clouds.folder import FolderMetadata
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.records import Market, NoticeKind
from everspot_store import ManualClock, Store
from everspot_train.agent.metadata import read_interruption, read_manifest, read_rebalance
from everspot_train.agent.watch import NoticeWatcher, sources_from

MANIFEST = Manifest(cluster="c", cloud="aws", control_url="s3://control", data_url="s3://data")


@pytest.fixture
def server() -> Iterator[MetadataServer]:
    server = MetadataServer(metadata_pages(MANIFEST, "i-0abc"))
    yield server
    server.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def client(server: MetadataServer, clock: ManualClock) -> ImdsClient:
    return ImdsClient(server.endpoint, clock, timeout=timedelta(seconds=1))


def test_one_token_serves_many_requests_and_is_renewed_in_time(
    client: ImdsClient, server: MetadataServer, clock: ManualClock
) -> None:
    for _ in range(3):
        assert client.get("latest/meta-data/instance-id") == "i-0abc"
    assert [verb for verb, _ in server.requests] == ["PUT", "GET", "GET", "GET"]
    clock.advance(TOKEN_TTL / 2)
    client.get("latest/meta-data/instance-id")
    assert [verb for verb, _ in server.requests][4:] == ["PUT", "GET"]


def test_a_token_that_the_service_forgot_is_replaced(client: ImdsClient, server: MetadataServer) -> None:
    client.get("latest/meta-data/instance-id")
    server.tokens.clear()
    assert client.get("latest/meta-data/instance-id") == "i-0abc"


@pytest.mark.parametrize("failures", [[503], [500, 503, 429], [None, None], [503, None, 503, 503]])
def test_trouble_is_tried_again_with_growing_waits(
    client: ImdsClient, server: MetadataServer, clock: ManualClock, failures: list[int | None]
) -> None:
    server.failures = list(failures)
    assert client.get("latest/meta-data/instance-id") == "i-0abc"
    assert clock.slept == [timedelta(milliseconds=100) * 2**n for n in range(len(failures))]


def test_the_attempts_are_bounded(client: ImdsClient, server: MetadataServer, clock: ManualClock) -> None:
    server.failures = [503] * 100
    with pytest.raises(MetadataUnavailable, match="instance-id"):
        client.get("latest/meta-data/instance-id")
    assert len(server.requests) == ATTEMPTS
    assert len(clock.slept) == ATTEMPTS - 1


def test_a_page_that_does_not_exist_is_an_answer(client: ImdsClient, clock: ManualClock) -> None:
    assert client.get("latest/meta-data/spot/instance-action") is None
    assert clock.slept == []


def test_a_service_that_is_not_there_is_unavailable(server: MetadataServer, clock: ManualClock) -> None:
    with pytest.raises(MetadataUnavailable):
        ImdsClient("http://127.0.0.1:9", clock).get("latest/meta-data/instance-id")


def test_identity_manifest_and_notices_are_read(client: ImdsClient, server: MetadataServer, clock: ManualClock) -> None:
    metadata = ImdsMetadata(client)
    assert read_manifest(metadata) == MANIFEST
    expected = Identity(instance_id="i-0abc", instance_type="m5.large", zone="us-east-1a", market=Market.SPOT)
    assert metadata.identity() == expected
    assert metadata.interruption() is None
    assert metadata.rebalance() is None
    at = datetime(2026, 1, 1, 8, 22, tzinfo=UTC)
    server.announce_interruption(at)
    server.recommend_rebalance(at)
    notice, advice = read_interruption(metadata, clock), read_rebalance(metadata, clock)
    assert notice is not None
    assert (notice.kind, notice.action_at, notice.source) == (NoticeKind.INTERRUPTION, at, "metadata")
    assert advice is not None
    assert (advice.kind, advice.action_at) == (NoticeKind.REBALANCE, at)


@pytest.mark.parametrize("text", ["", "oops", "{}", '{"action": "terminate"}', '{"time": "soon"}', '{"time": 5}'])
def test_a_notice_that_is_not_understood_is_no_notice_but_an_error(
    client: ImdsClient, server: MetadataServer, clock: ManualClock, text: str
) -> None:
    server.pages["latest/meta-data/spot/instance-action"] = text
    with pytest.raises(MetadataError, match="instance-action"):
        ImdsMetadata(client).interruption()


def test_user_data_that_is_no_manifest_is_told_in_words(
    client: ImdsClient, server: MetadataServer, clock: ManualClock
) -> None:
    metadata = ImdsMetadata(client)
    server.pages["latest/user-data"] = "#!/bin/sh"
    with pytest.raises(MetadataError, match="user data holds no manifest"):
        read_manifest(metadata)
    del server.pages["latest/user-data"]
    with pytest.raises(MetadataError, match="not launched by an Everspot cluster"):
        metadata.manifest()


def test_the_endpoint_is_the_standard_variable_or_the_link_local_address() -> None:
    assert (
        endpoint_from({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://[fd00:ec2::254]"}.get) == "http://[fd00:ec2::254]"
    )
    assert endpoint_from({}.get) == "http://169.254.169.254"


def test_a_folder_gives_its_manifest_and_never_a_notice(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(MANIFEST.to_json())
    identity = Identity(instance_id="a", instance_type="b", zone="c", market=Market.ON_DEMAND)
    metadata = FolderMetadata(path, identity)
    assert (read_manifest(metadata), metadata.identity()) == (MANIFEST, identity)
    assert metadata.interruption() is None
    with pytest.raises(MetadataError, match="cannot be read"):
        FolderMetadata(tmp_path / "none", identity).manifest()


def test_notice_sources_are_named_or_refused() -> None:
    assert sources_from(None) == {"metadata", "queue"}
    assert sources_from("metadata") == {"metadata"}
    assert sources_from(" queue , metadata ") == {"metadata", "queue"}
    with pytest.raises(ValueError, match="known sources are metadata, queue"):
        sources_from("sqs")


def test_an_interruption_is_heard_though_the_rebalance_recommendation_is_garbage(
    client: ImdsClient, server: MetadataServer, clock: ManualClock, tmp_path: Path
) -> None:
    url = f"file://{tmp_path}"
    watch = NoticeWatcher(Store.open(url, url, clock=clock), ImdsMetadata(client), "i-0abc", clock)
    server.pages["latest/meta-data/events/recommendations/rebalance"] = "{"
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    server.announce_interruption(at)

    watch.poll_notices()

    heard = watch.observe().interruption
    assert heard is not None and heard.action_at == at
