"""Orphans: what has a cluster's tag or label and belongs to no stack, on both local clouds."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from everspot_clouds.base import Left
from everspot_clouds.orphans import find_orphans, unclaimed
from everspot_clouds.registry import provider
from everspot_clouds.stack_state import declared_clusters, known_ids
from everspot_core.market import Market
from everspot_local.cloud import LocalCloud
from google_site import REGION, TEMPLATE, A, GoogleSite
from hypothesis import given
from hypothesis import strategies as st

INSTANCE = {"instance_type": "g5.xlarge", "zone": "us-east-1a", "market": Market.ON_DEMAND}


def machine(name: str, part_of: str = "", **more: Any) -> Left:
    return Left(kind="instance", name=name, part_of=part_of, **{**INSTANCE, **more})


FLEET = Left(kind="fleet", name="fleet-1")


@pytest.mark.parametrize(
    ("found", "known", "roots"),
    [
        ([FLEET, machine("i-1", "fleet-1")], [], {"fleet-1": ["i-1"]}),
        ([FLEET, machine("i-1", "fleet-1")], ["fleet-1"], {}),
        ([machine("i-1", "fleet-1")], [], {"i-1": []}),  # its fleet was deleted without it
        ([machine("i-1", "fleet-1")], ["fleet-1"], {}),
        ([machine("i-1", launched=True)], [], {}),
        ([machine("i-1")], ["i-1"], {}),
        ([machine("i-1"), machine("i-2", ending=True)], [], {"i-1": []}),
        ([Left(kind="fleet", name="fleet-1", ending=True), machine("i-1", "fleet-1")], [], {"i-1": []}),
        ([Left(kind="bucket", name="b", kept=True)], [], {}),
        ([Left(kind="volume", name="vol-1")], ["vol-2"], {"vol-1": []}),
    ],
)
def test_what_nobody_claims_is_found_with_its_instances(
    found: list[Left], known: list[str], roots: dict[str, list[str]]
) -> None:
    assert {one.name: [part.name for part in parts] for one, parts in unclaimed(found, known)} == roots


@given(
    st.lists(
        st.builds(
            Left, kind=st.just("x"), name=st.sampled_from("abcdef"), part_of=st.sampled_from(["", "a", "b", "z"]),
            launched=st.booleans(), ending=st.booleans(), kept=st.booleans(),
        ),
        unique_by=lambda one: one.name,
    ),
    st.frozensets(st.sampled_from("abcdefz")),
)  # fmt: skip
def test_every_resource_is_claimed_or_told_once(found: list[Left], known: frozenset[str]) -> None:
    told = [one for root, parts in unclaimed(found, known) for one in (root, *parts)]
    claimed = [
        one for one in found
        if one.kept or one.ending or one.launched or one.name in known or one.part_of in known
    ]  # fmt: skip
    assert len({one.name for one in told}) == len(told)
    assert not {one.name for one in told} & {one.name for one in claimed}


def until(condition: Callable[[], Any]) -> Any:
    ends = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.05)
    return found


@pytest.fixture
def site(google: LocalCloud) -> GoogleSite:
    found = GoogleSite(google)
    found.build()
    for zone in "abc":
        google.do("depth", pool=f"g2-standard-4/{REGION}-{zone}", instances=8, market="on-demand")
    return found


def test_a_group_of_no_stack_is_found_with_its_cost_and_removed(site: GoogleSite) -> None:
    for name in ("train-known", "train-orphan"):
        body = {
            "name": name, "baseInstanceName": name, "targetSize": 2, "versions": [{"instanceTemplate": TEMPLATE}],
            "distributionPolicy": {"targetShape": "ANY"},
            "updatePolicy": {"type": "OPPORTUNISTIC", "instanceRedistributionType": "NONE"},
        }  # fmt: skip
        site.do("POST", f"regions/{REGION}/instanceGroupManagers", body)
    site.run("stray", A)
    known = {"train-known", "train-elastic"}
    look = lambda: find_orphans(site.manifest(), known, site.clock)  # noqa: E731
    until(lambda: [len(one.parts) for one in look()] == [2, 0])
    group, stray = look()
    assert (group.resource.kind, group.resource.name) == ("instance group", "train-orphan")
    assert group.usd_per_hour and stray.usd_per_hour and group.usd_per_hour == pytest.approx(2 * stray.usd_per_hour)
    assert "train-orphan (target 2, 2 instances): about $" in group.sentence
    assert group.command == (
        f"gcloud compute instance-groups managed delete train-orphan --region {REGION} --project everspot-local"
    )
    assert stray.command == f"gcloud compute instances delete stray --zone {A} --project everspot-local"
    place = provider("gcp").site(site.manifest())
    for _ in range(2):  # what is gone already is no failure
        place.remove([group.resource, stray.resource])
    until(lambda: not look())
    assert {one.name for one in place.left() if one.kind == "instance group"} == {"train-known"}


TAGS = {"Project": "x", "everspot:cluster": "train"}


def resource(kind: str, id: str = "", name: str = "n", **outputs: Any) -> dict[str, Any]:
    return {"urn": f"urn:pulumi:dev::p::{kind}::{name}", "type": kind, "custom": True, "id": id, "outputs": outputs}


def test_a_killed_first_update_s_cluster_is_known_by_what_it_left() -> None:
    vpc = resource("aws:ec2/vpc:Vpc", "vpc-1", tags=TAGS, arn="arn:aws:ec2:eu-west-1:1:vpc/vpc-1")
    role = resource("aws:iam/role:Role", "role-1", tags=TAGS, arn="arn:aws:iam::1:role/role-1")
    bucket = resource("aws:s3/bucket:Bucket", "train-1", "train-store-control", tags=TAGS, region="eu-west-1")
    (found,) = declared_clusters({"deployment": {"resources": [role, vpc, bucket]}})
    assert (found.cloud, found.cluster, found.region) == ("aws", "train", "eu-west-1")
    assert (found.control_url, found.data_url) == ("s3://train-1?region=eu-west-1", "")
    only = {"type": "creating", "resource": {"urn": "u::a", "type": "aws:ec2/fleet:Fleet", "inputs": {"tags": TAGS}}}
    default = {"urn": "u::d", "type": "pulumi:providers:aws", "id": "x", "inputs": {"region": "us-east-2"}}
    (found,) = declared_clusters({"deployment": {"resources": [default], "pending_operations": [only]}})
    assert (found.cluster, found.region) == ("train", "us-east-2")
    label = {"everspot-cluster": "train"}
    groups = resource("gcp:compute/disk:Disk", "projects/p/zones/z/disks/d", labels=label, project="p")
    net = resource("gcp:compute/address:Address", "projects/p/regions/r/addresses/a", labels=label, region="r")
    (found,) = declared_clusters({"deployment": {"resources": [groups, net]}})
    assert (found.cloud, found.cluster, found.region, found.account) == ("gcp", "train", "r", "p")
    assert {"d", "projects/p/zones/z/disks/d", "a"} <= known_ids({"deployment": {"resources": [groups, net]}})


@pytest.mark.parametrize("state", [{}, {"deployment": None}, {"deployment": {"resources": [{"type": None}, {}]}}])
def test_a_stack_without_a_cluster_has_none(state: dict[str, Any]) -> None:
    assert declared_clusters(state) == []
    assert known_ids(state) == frozenset()
