"""The metadata server of an instance on the local Google Cloud: identity, interruption notice, and self-deletion."""

import json
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from everspot_clouds.base import Metadata, MetadataError, MetadataUnavailable
from everspot_clouds.gcp.metadata import GcpMetadata, MetadataServer
from everspot_clouds.registry import provider
from everspot_core.capacity.market import Market
from everspot_local.cloud import LocalCloud
from everspot_store import ManualClock
from google_site import CLUSTER, SPOT, A, GoogleSite

ACCOUNT = [{"email": "default", "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}]


@pytest.fixture
def site(google: LocalCloud) -> GoogleSite:
    built = GoogleSite(google)
    built.build()
    return built


def open_metadata(site: GoogleSite, instance_id: str) -> Metadata:
    """The metadata service as the instance sees it, on the market's clock."""
    environment = {
        "GCE_METADATA_HOST": site.cloud.project.metadata.address(instance_id),
        "EVERSPOT_GCP_ENDPOINT": site.cloud.endpoint,
    }
    return provider("gcp").metadata(site.clock, environment.get)


def launch(site: GoogleSite, notice: int | None = None, account: str = "default", **more: object) -> str:
    """The id of a Spot instance with a manifest. `account`: its service account."""
    manifest = site.manifest(notice=f"{notice}s" if notice is not None else None)
    items = [{"key": "everspot-manifest", "value": manifest.to_json().decode()}]
    accounts = {"serviceAccounts": [{**ACCOUNT[0], "email": account}]}
    scheduling = {**SPOT, **({"preemptionNoticeDuration": {"seconds": str(notice)}} if notice else {})}
    return site.run("one", A, scheduling=scheduling, metadata={"items": items}, **accounts, **more)


def ended(site: GoogleSite, own: str) -> bool:
    """End the instance. False: its new role is not seen yet."""
    try:
        return open_metadata(site, own).end()
    except MetadataError as error:
        if "permission" not in str(error):
            raise
        return False


def until(condition: Callable[[], object]) -> object:
    end = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return value


def test_an_instance_learns_who_it_is(site: GoogleSite) -> None:
    own = launch(site, 120)
    metadata = open_metadata(site, own)
    identity = metadata.identity()
    assert (identity.instance_id, identity.instance_type) == (own, "g2-standard-4")
    assert (identity.zone, identity.market) == (A, Market.SPOT)
    assert json.loads(metadata.manifest())["cluster"] == CLUSTER
    assert metadata.where == "instance metadata everspot-manifest"
    assert (metadata.interruption(), metadata.rebalance()) == (None, None)


def test_attached_gpus_are_read_from_the_description(site: GoogleSite) -> None:
    own = site.run(
        "one", A, machineType="n1-standard-8", description="Everspot n1-standard-8+t4",
        guestAccelerators=[
            {"acceleratorType": f"zones/{A}/acceleratorTypes/nvidia-tesla-t4", "acceleratorCount": 1}
        ],
    )  # fmt: skip
    identity = open_metadata(site, own).identity()
    assert (identity.instance_type, identity.market) == ("n1-standard-8+t4", Market.ON_DEMAND)


@pytest.mark.parametrize("notice", [None, 120])
def test_a_preemption_is_seen_at_once_and_its_end_is_reckoned(site: GoogleSite, notice: int | None) -> None:
    own = launch(site, notice)
    metadata = open_metadata(site, own)
    assert metadata.interruption() is None
    ends: list[datetime | None] = []
    waits = threading.Thread(target=lambda: ends.append(metadata.interruption()))
    waits.start()
    began = site.clock.now()
    site.cloud.do("interrupt", instance=own)
    waits.join(60)
    (end,) = ends
    assert end is not None
    counted = timedelta(seconds=(notice or 0) + 25)
    assert began + counted <= end <= site.clock.now() + counted
    assert metadata.interruption() == end, "the moment does not move"


def test_an_instance_that_leaves_is_deleted_by_itself(site: GoogleSite) -> None:
    account = str(site.api.post("iam", "projects/everspot-local/serviceAccounts", {"accountId": "agent-1"})["email"])
    role = ("roles/compute.instanceAdmin.v1", f"serviceAccount:{account}")
    site.bind("resourcemanager", "projects/everspot-local:setIamPolicy", "POST", role)
    own = launch(site, account=account)
    until(lambda: ended(site, own))
    path = f"projects/everspot-local/zones/{A}/instances"
    until(lambda: not site.api.get("compute", path).get("items"))


def test_without_a_service_account_nothing_is_deleted_and_said_so(site: GoogleSite) -> None:
    own = site.run("one", A)
    with pytest.raises(MetadataError, match="no token"):
        open_metadata(site, own).end()
    with pytest.raises(MetadataError, match="no instance metadata everspot-manifest"):
        open_metadata(site, own).manifest()


def test_a_server_that_does_not_answer_is_asked_a_bounded_number_of_times() -> None:
    clock = ManualClock()
    began = clock.monotonic()
    metadata = GcpMetadata(MetadataServer("http://nowhere.invalid/x", clock), clock, {}.get)
    with pytest.raises(MetadataUnavailable):
        metadata.identity()
    assert clock.monotonic() - began == timedelta(milliseconds=1500)
