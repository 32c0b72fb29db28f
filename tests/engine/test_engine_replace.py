"""A cluster that is protected, guarded, repaired and taken down by `everspot cluster down`, through the real engine: a
scheduler releases the instances that it launched, and no others.

The tests share one cluster and run in this order.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import engine_killed
import pytest
from everspot_cli.commands import down
from everspot_cli.main import main
from everspot_clouds.aws import capacity
from everspot_clouds.aws.cloud import AwsCloud
from everspot_clouds.registry import provider
from everspot_core.capacity.launching import LaunchIntent, LaunchPool
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.records import InstanceRecord, InstanceState, JobRecord, JobState, Market, Role
from everspot_scheduler.elastic.intents import Intents
from everspot_scheduler.loop import Scheduler
from everspot_store import Store
from pulumi import automation

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

CLUSTER = "everspot-local"
SPOT, ON_DEMAND = "everspot-local-fleet-spot", "everspot-local-fleet-on-demand"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module", autouse=True)
def protected(rig: Any) -> None:
    rig.up("account")
    rig.settings("protect", True)
    rig.settings("guardJobs", True)
    rig.settings("capacity.elastic.maxInstances", 4)
    rig.up()


@pytest.fixture
def at_home(rig: Any) -> Iterator[None]:
    """A shell in the project's folder, which knows the local cloud."""
    with engine_killed.at_home(rig):
        yield


def test_protect_refuses_to_replace_the_fleet(rig: Any) -> None:
    rig.settings("capacity.standing.spotAllocation", "capacity-optimized")
    assert "protect" in rig.refused()


def test_replacing_a_fleet_says_what_it_does_to_running_jobs_and_waits_for_them(rig: Any, at_home: None) -> None:
    fleets = rig.outputs["onDemandFleetId"], rig.outputs["spotFleetId"]
    store = Store.open(rig.outputs["controlUrl"])
    vision, speech = works_on(store, "vision-1", Market.SPOT), works_on(store, "speech-1", Market.ON_DEMAND)
    rig.settings("protect", False)
    with pytest.raises(automation.CommandError) as refused:
        rig.up("local", "--yes")  # which begins with a preview
    message = str(refused.value)
    assert f"{SPOT}: replaced or deleted, it ends its instances; 1 job runs on its instances now: vision-1. " in message
    assert "agents get SIGTERM and 80 s to checkpoint, which EC2 does not promise" in message
    assert "speech-1" not in message and f"{ON_DEMAND}: replaced" not in message
    assert "1 job would be ended: vision-1. `everspot cluster drain --wait`" in message
    assert rig.fleet()["FleetState"] == "active"
    assert {f["FleetId"] for f in rig.client("ec2").describe_fleets()["Fleets"]} == set(fleets)  # nothing was created
    vision()
    delete_the_rebalance_rule(rig)
    rig.up("local", "--refresh")
    assert rig.outputs["onDemandFleetId"] == fleets[0] and rig.outputs["spotFleetId"] != fleets[1]
    # A manually deleted resource is detected and created again.
    assert any("rebalance" in r["Name"] for r in rig.client("events").list_rules()["Rules"])
    speech()


def works_on(store: Store, job: str, market: Market) -> Callable[[], None]:
    """A job that runs on an instance of a market, as its agent would have written it; what is returned drains it."""
    instance = InstanceRecord(
        instance_id=f"i-of-{job}", cluster=CLUSTER, role=Role.AGENT, instance_type="c6i.large",
        zone="eu-west-1a", market=market, vcpus=2, memory_gib=4, state=InstanceState.BUSY,
        booted_at=NOW, updated_at=NOW,
    )  # fmt: skip
    record = JobRecord(job_id=job, state=JobState.RUNNING, owner=instance.instance_id, changed_at=NOW)
    assert store.instances.create(instance.instance_id, instance) is not None
    version = store.records.create(job, record)
    assert version is not None
    drained = record.model_copy(update={"state": JobState.PENDING, "owner": None})
    return lambda: assert_kept(store.records.replace(job, version, drained))


def assert_kept(version: Any) -> None:
    assert version is not None


def of_zones(kind: str, zones: str) -> set[str]:
    return {f"{kind}-eu-west-1{zone}" for zone in zones}


REPLACED = "replaces subnets, routes and endpoints"
NETWORK_PARTS = {
    *("vpc", "routes", "default", "instances", "endpoints", "in-endpoints", "out-endpoints", "out-s3"),
    *(f"endpoint-{service}" for service in ("s3", "ec2", "sqs", "sts")),
    *of_zones("subnet", "abc"),
    *of_zones("routes", "abc"),
}


@pytest.mark.parametrize(
    ("setting", "value", "words", "removed"),
    [
        ("vpcCidr", "10.65.0.0/16", f"another vpcCidr {REPLACED}", NETWORK_PARTS),
        (
            "zones",
            ["eu-west-1b"],
            f"another list of zones {REPLACED}",
            of_zones("subnet", "abc") | of_zones("routes", "abc"),
        ),
        (
            "zones",
            ["eu-west-1a", "eu-west-1c"],
            f"another list of zones {REPLACED}",
            of_zones("subnet", "bc") | of_zones("routes", "bc"),
        ),
        ("zones", ["eu-west-1a", "eu-west-1b", "eu-west-1c"], "", set()),
        ("services", ["sns"], "", set()),
        ("nat", True, "", set()),
        ("jobRole", False, "jobRole: false deletes the role of running jobs", {"endpoint-sts"}),
    ],
)
def test_a_change_that_cuts_instances_off_their_network_waits_for_their_jobs(
    rig: Any, at_home: None, setting: str, value: Any, words: str, removed: set[str]
) -> None:
    """Which parts of the network a setting replaces or deletes, and that the harmful ones wait for jobs."""
    declared = rig.declared().get(setting)
    rig.settings(setting, value)
    if words:
        store = Store.open(rig.outputs["controlUrl"])
        drained = works_on(store, f"vision-{setting.lower()}-{len(str(value))}", Market.SPOT)
        before = rig.client("ec2").describe_subnets()["Subnets"]
        with pytest.raises(automation.CommandError) as refused:
            rig.up("local", "--yes")  # which begins with a preview
        message = str(refused.value)
        assert f"{CLUSTER}-place: {words}; 1 job runs on its instances now: " in message
        assert "1 job would be ended: " in message
        assert rig.client("ec2").describe_subnets()["Subnets"] == before, "nothing was created or deleted"
        drained()
    changes = rig.preview().changes
    part = f"{CLUSTER}-network-"
    deleted = {name.removeprefix(part) for name, op in changes.items() if name.startswith(part) and "delete" in op}
    assert deleted == removed
    rig.settings(setting, declared)


def delete_the_rebalance_rule(rig: Any) -> None:
    events = rig.client("events")
    rule = next(r["Name"] for r in events.list_rules()["Rules"] if "rebalance" in r["Name"])
    events.remove_targets(Rule=rule, Ids=[t["Id"] for t in events.list_targets_by_rule(Rule=rule)["Targets"]])
    events.delete_rule(Name=rule)


class UntilReleased(timedelta):
    """A minute, or less: until the scheduler has ended all that it launched. What it does not know of is left then."""

    released: Callable[[], bool]

    def __gt__(self, elapsed: timedelta) -> bool:
        return super().__gt__(elapsed) and not self.released()


def launched(rig: Any, manifest: Manifest, token: str, store: Store | None = None) -> list[str]:
    """Two instances, as a scheduler launches them; with the `store` they are known to the next one."""
    elastic = manifest.elastic
    assert elastic is not None
    (zone, place), *_ = elastic.places.items()
    intent = LaunchIntent(
        seq=1, token=token, jobs=("a", "b"), ordered=False, whole=False, usd_per_hour=1,
        pools=(LaunchPool(instance_type="m6i.large", zone=zone, market=Market.ON_DEMAND, place=place),),
        template=elastic.template, template_version=elastic.template_version,
        made_at=datetime(2026, 1, 1, tzinfo=UTC), scheduler_id="s-1",
    )  # fmt: skip
    intents = Intents(store) if store is not None else None
    assert intents is None or intents.create(intent)
    answer = capacity.launch(rig.client("ec2"), CLUSTER, intent)
    assert not answer.errors
    if intents is not None:
        intents.record_outcome(intent, answer.instances, answer.errors)
    return [instance.instance_id for instance in answer.instances]


@contextmanager
def scheduling(manifest: Manifest, store: Store) -> Iterator[None]:
    """The cluster's scheduler, on this machine."""
    cloud, over = AwsCloud.open(manifest, store.clock), threading.Event()
    thread = threading.Thread(target=Scheduler(store, manifest, cloud, "s-1").run, args=(over.is_set,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        cloud.close()


def everspot(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_nothing_is_left_of_a_cluster_that_was_taken_down(
    rig: Any, at_home: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(rig.outputs["controlUrl"])
    manifest = store.manifest()
    ids, unknown = launched(rig, manifest, Intents(store).token(), store), launched(rig, manifest, "0" * 32)
    assert len({*ids, *unknown}) == 4
    limit = UntilReleased(minutes=1)
    limit.released = lambda: not {"pending", "running"} & {rig.agents()[name] for name in ids}
    monkeypatch.setattr(down, "RELEASE_TIMEOUT", limit)
    assert everspot("down", "--stack", "account", "--yes") == 3
    assert "the stack account declares no cluster" in capsys.readouterr().err
    with scheduling(manifest, store):
        assert everspot("down", "--stack", "local", "--yes") == 0
    output = capsys.readouterr()
    assert not any(name in output.err for name in ids), "the scheduler has released them"
    for words in (
        "Drained: 0 jobs",
        "Not released within 1m: ",
        *unknown,
        "Ending them directly.",
        "Destroying stack local.",
    ):
        assert words in output.err
    assert f"{CLUSTER} is down; nothing of it is left that runs." in output.out
    ec2 = rig.client("ec2")
    cluster_filter = [{"Name": "tag:everspot:cluster", "Values": [CLUSTER]}]
    alive = [*cluster_filter, {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
    assert ec2.describe_instances(Filters=alive)["Reservations"] == []
    assert ec2.describe_volumes(Filters=cluster_filter)["Volumes"] == []
    assert [f for f in ec2.describe_fleets()["Fleets"] if f["FleetState"] == "active"] == []
    assert rig.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []
    assert everspot("down", "--stack", "local", "--yes") == 3  # and once more there is nothing to take down
    rig.destroy("account")
    assert {"ec2:CreateFleet", "iam:PassRole", "s3:PutEncryptionConfiguration"} <= rig.requested_actions["deploy"]
    assert rig.unlisted() == set()


def test_what_stands_of_a_cluster_is_told_by_its_tag(rig: Any, at_home: None) -> None:
    ec2 = rig.client("ec2")
    manifest = Manifest(cluster="lost", cloud="aws", region=os.environ["AWS_REGION"], control_url="s3://no-such-bucket-1",
                        data_url="s3://no-such-bucket-1")  # fmt: skip
    site = provider("aws").site(manifest)
    assert site.remaining() == []
    zone = f"{os.environ['AWS_REGION']}a"
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "everspot:cluster", "Value": "lost"}]}]
    volume = ec2.create_volume(AvailabilityZone=zone, Size=8, VolumeType="gp3", TagSpecifications=tags)["VolumeId"]
    try:
        (leftover,) = site.remaining()
        assert (leftover.kind, leftover.name, leftover.ending, leftover.retained) == ("volume", volume, False, False)
    finally:
        ec2.delete_volume(VolumeId=volume)
