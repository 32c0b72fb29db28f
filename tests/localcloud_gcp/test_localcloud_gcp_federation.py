"""Both local clouds together: a bucket of one admits a scheduler of the other, and no other caller.

What asks is the product's own code, with the credentials that an instance has; what answers are both local clouds, each
asking the other as the real ones do.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_clouds.base import CloudError
from everspot_clouds.peers import peer_credentials
from everspot_core.cluster.manifest import Manifest
from everspot_core.cluster.peers import Peer
from everspot_local.options import Options
from everspot_scheduler.federation.peer_access import open_peer
from everspot_store import StoreDenied, StoreUnavailable, SystemClock
from everspot_store.cloud import open_cloud
from peer_clouds import (
    GCS,
    GUEST,
    POOL,
    PROVIDER,
    S3,
    SCHEDULER,
    VISITOR,
    enforcing_options,
    to_aws,
    to_google,
)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    return enforcing_options(Path(tmp_path_factory.mktemp("federation")))


def test_a_scheduler_on_aws_writes_where_its_peer_on_google_lets_it(from_aws: Any) -> None:
    bucket = open_cloud(GCS, to_google())
    assert bucket.create("visits/train-v1.json", b"{}").version is not None
    assert bucket.get("visits/train-v1.json").value == b"{}"
    with pytest.raises(StoreDenied, match=r"storage\.objects\.create"):
        bucket.put("jobs/train.json", b"{}")


def test_a_scheduler_on_google_writes_where_its_peer_on_aws_lets_it(from_google: Any) -> None:
    bucket = open_cloud("s3://aws-control", to_aws(), "eu-west-1")
    assert bucket.create("visits/train-v1.json", b"{}").version is not None
    assert bucket.get("visits/train-v1.json").value == b"{}"
    with pytest.raises(StoreDenied):
        bucket.put("jobs/train.json", b"{}")


def test_a_scheduler_on_aws_becomes_its_peers_role_there_too(clouds: Any) -> None:
    may = [{"Action": "sts:AssumeRole", "Resource": GUEST}]
    clouds.role(SCHEDULER, {"Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}, may)
    objects = [{"Action": ["s3:PutObject"], "Resource": "arn:aws:s3:::aws-control/visits/*"}]
    clouds.role(GUEST, {"Principal": {"AWS": SCHEDULER}, "Action": "sts:AssumeRole"}, objects)
    clouds.role(f"{SCHEDULER}-other", {"Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}, [])
    clouds.on_aws()
    bucket = open_cloud("s3://aws-control", peer_credentials("aws", "eu-west-1", S3, GUEST, ""), "eu-west-1")
    assert bucket.create("visits/train-v1.json", b"{}").version is not None
    clouds.iam.update_assume_role_policy(
        RoleName="everspot-guest",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [
            {"Effect": "Allow", "Principal": {"AWS": f"{SCHEDULER}-other"}, "Action": "sts:AssumeRole"}]}),
    )  # fmt: skip
    with pytest.raises(CloudError, match="everspot-guest cannot be assumed: AccessDenied"):
        peer_credentials("aws", "eu-west-1", S3, GUEST, "")()


def test_who_stays_who_it_is_needs_no_other_credentials() -> None:
    assert peer_credentials("gcp", "europe-west4", GCS, "", "") is None
    assert peer_credentials("folder", "", "file:///peer", "", "") is None
    with pytest.raises(CloudError, match="a folder gives its agents no identity"):
        peer_credentials("folder", "", GCS, VISITOR, PROVIDER)


def test_a_store_says_what_is_wrong_with_the_way_in(from_aws: Any) -> None:
    bucket = open_cloud(GCS, to_google(audience=f"{POOL}/providers/none"))
    with pytest.raises(StoreDenied, match="doesn't exist"):
        bucket.get("visits/train-v1.json")
    from_aws.patch.setenv("EVERSPOT_GCP_ENDPOINT", "http://127.0.0.1:9")  # no server listens there
    for credentials in (to_google(), to_google(audience=f"{POOL}/providers/none")):
        with pytest.raises(StoreUnavailable, match="does not take this cluster's proof: ConnectionError"):
            open_cloud(GCS, credentials).get("visits/train-v1.json")


def test_credentials_are_kept_until_shortly_before_their_end(from_aws: Any) -> None:
    credentials = to_google()
    first = credentials()
    assert first["expires_at"] - datetime.now(UTC) > timedelta(minutes=50)
    assert credentials() == first
    credentials._now = lambda: first["expires_at"] - timedelta(minutes=9)
    renewals: list[str] = []
    got = credentials._get
    credentials._get = lambda: renewals.append("again") or got()
    credentials()
    assert renewals == ["again"]


def test_two_clouds_that_were_not_introduced_believe_nothing(from_google: Any) -> None:
    from_google.aws.machines.second_cloud.endpoint = ""
    with pytest.raises(CloudError, match="IDPCommunicationError"):
        to_aws()()
    with pytest.raises(ValueError, match="is not the endpoint of a local cloud"):
        from_google.aws.meet("gcp", "https://example.org")
    with pytest.raises(ValueError, match="there is no cloud 'mars' here"):
        from_google.aws.meet("mars", "http://127.0.0.1:1")


def test_a_scheduler_opens_its_peers_store_as_who_the_manifest_says(from_aws: Any) -> None:
    own = Manifest(
        cluster="home", cloud="aws", region="eu-west-1", control_url=S3, data_url="s3://aws-data?region=eu-west-1"
    )
    peer = Peer(name="there", cloud="gcp", control_url=GCS, data_url=GCS, identity=VISITOR, audience=PROVIDER)
    peer_store = open_peer(peer, own, SystemClock())
    assert peer_store.control.create("visits/train-v2.json", b"{}") is not None
    with pytest.raises(StoreDenied):
        peer_store.control.create("jobs/train.json", b"{}")
