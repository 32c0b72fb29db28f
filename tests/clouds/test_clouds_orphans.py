"""Orphans on both local clouds: resources with a cluster's tag or label that belong to no stack."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from everspot_clouds.aws.cloud import AwsCloud
from everspot_clouds.aws.site import AwsSite
from everspot_clouds.base import CloudError, RemainingResource
from everspot_clouds.orphans import find_orphans, unclaimed
from everspot_clouds.registry import provider
from everspot_clouds.stack_state import declared_clusters, list_ids
from everspot_core.capacity.launching import store_mark
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Manifest
from everspot_local.aws.environment import owner as aws_owner
from everspot_local.cloud import LocalCloud
from everspot_local.options import Options
from everspot_store import SystemClock
from google_site import MARK, REGION, TEMPLATE, A, GoogleSite
from hypothesis import given
from hypothesis import strategies as st

LABELS = {"everspot-cluster": "train", "everspot-store": MARK}
OWN, OTHER = store_mark("s3://known-bucket-1"), store_mark("s3://others-bucket-1")
INSTANCE = {"instance_type": "g5.xlarge", "zone": "us-east-1a", "market": Market.ON_DEMAND}


def machine(name: str, part_of: str = "", **more: Any) -> RemainingResource:
    return RemainingResource(kind="instance", name=name, part_of=part_of, **{**INSTANCE, **more})


FLEET = RemainingResource(kind="fleet", name="fleet-1")


@pytest.mark.parametrize(
    ("resources", "stack_ids", "roots"),
    [
        ([FLEET, machine("i-1", "fleet-1")], [], {"fleet-1": ["i-1"]}),
        ([FLEET, machine("i-1", "fleet-1")], ["fleet-1"], {}),
        ([machine("i-1", "fleet-1")], [], {"i-1": []}),  # its fleet was deleted without it
        ([machine("i-1", "fleet-1")], ["fleet-1"], {}),
        ([machine("i-1", launched=True)], [], {}),
        ([machine("i-1")], ["i-1"], {}),
        ([machine("i-1"), machine("i-2", ending=True)], [], {"i-1": []}),
        ([RemainingResource(kind="fleet", name="fleet-1", ending=True), machine("i-1", "fleet-1")], [], {"i-1": []}),
        ([RemainingResource(kind="bucket", name="b", retained=True)], [], {}),
        ([RemainingResource(kind="volume", name="vol-1")], ["vol-2"], {"vol-1": []}),
    ],
)
def test_what_nobody_claims_is_found_with_its_instances(
    resources: list[RemainingResource], stack_ids: list[str], roots: dict[str, list[str]]
) -> None:
    assert {root.name: [part.name for part in parts] for root, parts in unclaimed(resources, stack_ids)} == roots


@given(
    st.lists(
        st.builds(
            RemainingResource, kind=st.just("x"), name=st.sampled_from("abcdef"),
            part_of=st.sampled_from(["", "a", "b", "z"]), launched=st.booleans(), ending=st.booleans(),
            retained=st.booleans(),
        ),
        unique_by=lambda resource: resource.name,
    ),
    st.frozensets(st.sampled_from("abcdefz")),
)  # fmt: skip
def test_every_resource_is_claimed_or_told_once(resources: list[RemainingResource], stack_ids: frozenset[str]) -> None:
    reported = [resource for root, parts in unclaimed(resources, stack_ids) for resource in (root, *parts)]
    claimed = [
        resource for resource in resources
        if resource.retained or resource.ending or resource.launched
        or resource.name in stack_ids or resource.part_of in stack_ids
    ]  # fmt: skip
    assert len({resource.name for resource in reported}) == len(reported)
    assert not {resource.name for resource in reported} & {resource.name for resource in claimed}


def until(condition: Callable[[], Any]) -> Any:
    ends = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.05)
    return value


@pytest.fixture
def site(google: LocalCloud) -> GoogleSite:
    built = GoogleSite(google)
    built.build(labels=LABELS, disks=built.disks(LABELS))
    for zone in "abc":
        google.do("depth", pool=f"g2-standard-4/{REGION}-{zone}", instances=8, market="on-demand")
    return built


def test_a_group_of_no_stack_is_found_with_its_cost_and_removed(site: GoogleSite) -> None:
    for name in ("train-known", "train-orphan"):
        body = {
            "name": name, "baseInstanceName": name, "targetSize": 2, "versions": [{"instanceTemplate": TEMPLATE}],
            "distributionPolicy": {"targetShape": "ANY"},
            "updatePolicy": {"type": "OPPORTUNISTIC", "instanceRedistributionType": "NONE"},
        }  # fmt: skip
        site.do("POST", f"regions/{REGION}/instanceGroupManagers", body)
    site.run("stray", A, labels=LABELS)
    stack_ids = {"train-known", "train-elastic"}
    look = lambda: find_orphans(site.manifest(), stack_ids, site.clock)  # noqa: E731
    until(lambda: [len(orphan.parts) for orphan in look()] == [2, 0])
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
    assert {orphan.name for orphan in place.remaining() if orphan.kind == "instance group"} == {"train-known"}


@pytest.fixture
def amazon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Clients of a local AWS, as the account's owner."""
    with LocalCloud(Options(tmp_path / "local", boot_command=None, region="us-east-1")) as local:
        for name, value in aws_owner(local.endpoint, "us-east-1").items():
            monkeypatch.setenv(name, value)
        yield boto3.client


def test_a_deletion_that_aws_refuses_within_its_answer_is_an_error(amazon: Callable[[str], Any]) -> None:
    urls = {"control_url": "s3://known-bucket-1?region=us-east-1", "data_url": "s3://known-bucket-1"}
    manifest = Manifest(cluster="train", cloud="aws", region="us-east-1", **urls)
    place, fleet = AwsSite(manifest), RemainingResource(kind="fleet", name="fleet-1")
    place.remove([fleet])  # the local cloud answers, in the list of failures, that there is no such fleet
    with Stubber(place._ec2) as stub:
        error = {"Code": "unexpectedError", "Message": "An internal error occurred"}
        answer = {"UnsuccessfulFleetDeletions": [{"FleetId": "fleet-1", "Error": error}]}
        stub.add_response("delete_fleets", answer)
        with pytest.raises(CloudError, match="unexpectedError: An internal error occurred"):
            place.remove([fleet])


def test_queues_rules_alarms_keys_and_buckets_of_no_stack_are_found_on_aws(amazon: Callable[[str], Any]) -> None:
    tags = [{"Key": "everspot:cluster", "Value": "train"}, {"Key": "everspot:store", "Value": OWN}]
    for name, cluster in (("known", "train"), ("lost", "train"), ("strange", "other")):
        own = {"everspot:cluster": cluster, "everspot:store": OWN}
        amazon("sqs").create_queue(QueueName=name, tags=own)
        amazon("s3").create_bucket(Bucket=f"{name}-bucket-1")
        owned = {"TagSet": [{"Key": key, "Value": value} for key, value in own.items()]}
        amazon("s3").put_bucket_tagging(Bucket=f"{name}-bucket-1", Tagging=owned)
    events, watch = amazon("events"), amazon("cloudwatch")
    events.put_rule(Name="lost-rule", EventPattern='{"source": ["aws.ec2"]}', Tags=tags)
    queue = "arn:aws:sqs:us-east-1:123456789012:lost"
    events.put_targets(Rule="lost-rule", Targets=[{"Id": "q", "Arn": queue}])
    alarm = {"EvaluationPeriods": 1, "Period": 60, "Statistic": "Sum", "Threshold": 1.0, "Namespace": "n"}
    watch.put_metric_alarm(
        AlarmName="lost-alarm", MetricName="m", ComparisonOperator="GreaterThanThreshold", Tags=tags, **alarm
    )
    key_tags = [{"TagKey": tag["Key"], "TagValue": tag["Value"]} for tag in tags]
    key_id = amazon("kms").create_key(Tags=key_tags)["KeyMetadata"]["KeyId"]
    urls = {"control_url": "s3://known-bucket-1?region=us-east-1", "data_url": "s3://known-bucket-1"}
    manifest = Manifest(cluster="train", cloud="aws", region="us-east-1", **urls)
    stack_ids = list_ids({"deployment": {"resources": [{"id": "https://sqs.us-east-1.amazonaws.com/1/known"}]}})
    look = lambda: find_orphans(manifest, stack_ids, SystemClock())  # noqa: E731
    orphans = {(orphan.resource.kind, orphan.resource.name): orphan for orphan in look()}
    assert {(*key, orphan.usd_per_hour) for key, orphan in orphans.items()} == {
        ("queue", "lost", 0), ("rule", "lost-rule", 0), ("bucket", "lost-bucket-1", None),
        ("alarm", "lost-alarm", 0.1 / 730), ("key", key_id, 1 / 730),
    }  # fmt: skip
    assert {kind for (kind, _), orphan in orphans.items() if orphan.resource.by_hand} == {"bucket", "key"}
    assert orphans["bucket", "lost-bucket-1"].command == "aws s3 rb s3://lost-bucket-1 --region us-east-1"
    assert orphans["queue", "lost"].command.startswith("aws sqs delete-queue --queue-url https://sqs.us-east-1.")
    place = provider("aws").site(manifest)
    for _ in range(2):  # what is gone already is no failure
        place.remove([orphan.resource for orphan in orphans.values() if not orphan.resource.by_hand])
    assert {orphan.resource.kind for orphan in look()} == {"bucket", "key"}
    assert len(amazon("sqs").list_queues()["QueueUrls"]) == 2


def test_another_cluster_of_the_same_name_is_left_alone_on_aws(amazon: Callable[[str], Any]) -> None:
    ec2, ids = amazon("ec2"), {}
    image = ec2.describe_images(Owners=["self", "amazon"])["Images"][0]["ImageId"]
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    marks = {"own": {"everspot:store": OWN}, "other": {"everspot:store": OTHER}, "none": {}}
    marks["karpenter"] = {"karpenter.sh/nodepool": "train", "karpenter.k8s.aws/ec2nodeclass": "train"}
    launches = {"launched": {"everspot:launch": f"{OWN}77"}, "launched by other": {"everspot:launch": f"{OTHER}77"}}
    for number, (owner, mark) in enumerate({**marks, **launches}.items()):
        tags = {"everspot:cluster": "train", **mark}
        as_list = [{"Key": key, "Value": value} for key, value in tags.items()]
        tagged = lambda kind, tags=as_list: [{"ResourceType": kind, "Tags": tags}]  # noqa: E731
        blocks = {"CidrBlock": f"10.0.{number}.0/24", "AvailabilityZone": "us-east-1a"}
        subnet = ec2.create_subnet(VpcId=vpc, **blocks, TagSpecifications=tagged("subnet"))["Subnet"]["SubnetId"]
        volume = ec2.create_volume(AvailabilityZone="us-east-1a", Size=8, TagSpecifications=tagged("volume"))[
            "VolumeId"
        ]
        queue = amazon("sqs").create_queue(QueueName=f"queue-{number}", tags=tags)["QueueUrl"].rpartition("/")[2]
        (instance,) = ec2.run_instances(
            ImageId=image, InstanceType="g5.xlarge", MinCount=1, MaxCount=1, SubnetId=subnet,
            TagSpecifications=tagged("instance"),
        )["Instances"]  # fmt: skip
        ids[owner] = {subnet, volume, queue, instance["InstanceId"]}
    # EC2 describes an instance some time after its launch.
    machines = [name for own in ids.values() for name in own if name.startswith("i-")]
    ec2.get_waiter("instance_exists").wait(InstanceIds=machines, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    urls = {"control_url": "s3://known-bucket-1?region=us-east-1", "data_url": "s3://known-bucket-1"}
    manifest = Manifest(cluster="train", cloud="aws", region="us-east-1", **urls)
    others = ids["other"] | ids["launched by other"] | {name for name in ids["karpenter"] if "queue" not in name}
    orphans = find_orphans(manifest, [], SystemClock())
    removed = {orphan.resource.name for orphan in orphans if not orphan.by_hand}
    assert removed >= ids["own"] and not removed & (others | ids["none"])
    assert {orphan.resource.name for orphan in orphans if orphan.by_hand} >= ids["none"]
    assert not {orphan.resource.name for orphan in orphans} & others
    for orphan in orphans:
        assert bool(orphan.command) is not orphan.by_hand
        assert ("without the mark of this cluster's store" in orphan.sentence) is orphan.by_hand
    listed = {item.name: item.launched for item in provider("aws").site(manifest).remaining()}
    (launched,) = (name for name in ids["launched"] if name.startswith("i-"))
    assert [name for name, by_scheduler in listed.items() if by_scheduler] == [launched]
    cloud = AwsCloud.open(manifest, SystemClock(), reads=True)
    assert {instance.instance_id for instance in cloud.instances()} == {
        name for owner in ("own", "none", "launched") for name in ids[owner] if name.startswith("i-")
    }
    cloud.close()


def test_another_cluster_of_the_same_name_is_left_alone_on_google_cloud(site: GoogleSite) -> None:
    manifest = site.manifest(control_url="gs://known-bucket-1", data_url="gs://known-bucket-1")
    own, other = store_mark("gs://known-bucket-1"), store_mark("gs://others-bucket-1")
    marks = {"own": {"everspot-store": own}, "other": {"everspot-store": other}, "none": {}}
    project, stray = "projects/everspot-local", {}
    for owner, mark in marks.items():
        labels = {"everspot-cluster": "train", **mark}
        site.template(f"template-{owner}", labels=labels, disks=site.disks(labels))
        site.api.call("PUT", "pubsub", f"{project}/topics/topic-{owner}", body={"labels": labels})
        body = {
            "name": f"group-{owner}", "baseInstanceName": owner, "targetSize": 0,
            "versions": [{"instanceTemplate": TEMPLATE.replace("train-elastic", f"template-{owner}")}],
            "distributionPolicy": {"targetShape": "ANY"},
            "updatePolicy": {"type": "OPPORTUNISTIC", "instanceRedistributionType": "NONE"},
        }  # fmt: skip
        site.do("POST", f"regions/{REGION}/instanceGroupManagers", body)
        stray[owner] = site.run(f"stray-{owner}", A, labels=labels)
    names = lambda owner: {f"template-{owner}", f"topic-{owner}", f"group-{owner}", stray[owner]}  # noqa: E731
    orphans = find_orphans(manifest, ["train-elastic"], site.clock)
    assert {orphan.resource.name for orphan in orphans if not orphan.by_hand} == names("own")
    assert {orphan.resource.name for orphan in orphans if orphan.by_hand} == names("none")
    assert all(bool(orphan.command) is not orphan.by_hand for orphan in orphans)
    cloud = provider("gcp").reading(manifest, site.clock)
    assert cloud is not None
    assert {instance.instance_id for instance in cloud.instances()} == {stray["own"], stray["none"]}
    cloud.close()


def test_subscriptions_topics_and_buckets_of_no_stack_are_found_on_google_cloud(site: GoogleSite) -> None:
    project = "projects/everspot-local"
    for name, cluster in (("train-known", "train"), ("train-lost", "train"), ("train-strange", "other")):
        labels = {"everspot-cluster": cluster, "everspot-store": store_mark("gs://train-known-bucket")}
        site.api.call("PUT", "pubsub", f"{project}/topics/{name}", body={"labels": labels})
        body = {"topic": f"{project}/topics/{name}", "labels": labels}
        site.api.call("PUT", "pubsub", f"{project}/subscriptions/{name}-s", body=body)
        bucket = {"name": f"{name}-bucket", "labels": labels, "location": REGION}
        site.api.call("POST", "storage", "b", body=bucket, query={"project": "everspot-local"})
    manifest = site.manifest(control_url="gs://train-known-bucket", data_url="gs://train-known-bucket")
    stack_ids = {"train-known", "train-known-s", "train-elastic"}
    look = lambda: find_orphans(manifest, stack_ids, site.clock)  # noqa: E731
    orphans = {(orphan.resource.kind, orphan.resource.name): orphan for orphan in look()}
    assert {key: orphan.usd_per_hour for key, orphan in orphans.items()} == {
        ("subscription", "train-lost-s"): 0, ("topic", "train-lost"): 0, ("bucket", "train-lost-bucket"): None,
    }  # fmt: skip
    assert orphans["topic", "train-lost"].command == "gcloud pubsub topics delete train-lost --project everspot-local"
    assert orphans["bucket", "train-lost-bucket"].resource.by_hand
    place = provider("gcp").site(manifest)
    for _ in range(2):
        place.remove([orphan.resource for orphan in orphans.values() if not orphan.resource.by_hand])
    assert [orphan.resource.kind for orphan in look()] == ["bucket"]


def test_orphans_are_found_although_another_service_refuses(
    amazon: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    amazon("ec2").create_volume(
        AvailabilityZone="us-east-1a", Size=8,
        TagSpecifications=[{"ResourceType": "volume", "Tags": [{"Key": "everspot:cluster", "Value": "train"}]}],
    )  # fmt: skip
    manifest = Manifest(cluster="train", cloud="aws", region="us-east-1", control_url="s3://c", data_url="s3://c")
    monkeypatch.setenv("AWS_ENDPOINT_URL_RESOURCE_GROUPS_TAGGING_API", "http://127.0.0.1:9")
    refused: list[str] = []
    (volume,) = find_orphans(manifest, [], SystemClock(), refused=refused)
    assert volume.resource.kind == "volume" and "queues, topics, buckets and keys could not be looked for" in refused[0]
    with pytest.raises(CloudError):
        find_orphans(manifest, [], SystemClock())


TAGS = {"Project": "x", "everspot:cluster": "train"}


def resource(kind: str, id: str = "", name: str = "n", **outputs: Any) -> dict[str, Any]:
    return {"urn": f"urn:pulumi:dev::p::{kind}::{name}", "type": kind, "custom": True, "id": id, "outputs": outputs}


def test_a_killed_first_update_s_cluster_is_known_by_what_it_left() -> None:
    vpc = resource("aws:ec2/vpc:Vpc", "vpc-1", tags=TAGS, arn="arn:aws:ec2:eu-west-1:1:vpc/vpc-1")
    role = resource("aws:iam/role:Role", "role-1", tags=TAGS, arn="arn:aws:iam::1:role/role-1")
    bucket = resource("aws:s3/bucket:Bucket", "train-1", "train-store-control", tags=TAGS, region="eu-west-1")
    (manifest,) = declared_clusters({"deployment": {"resources": [role, vpc, bucket]}})
    assert (manifest.cloud, manifest.cluster, manifest.region) == ("aws", "train", "eu-west-1")
    assert (manifest.control_url, manifest.data_url) == ("s3://train-1?region=eu-west-1", "")
    only = {"type": "creating", "resource": {"urn": "u::a", "type": "aws:ec2/fleet:Fleet", "inputs": {"tags": TAGS}}}
    default = {"urn": "u::d", "type": "pulumi:providers:aws", "id": "x", "inputs": {"region": "us-east-2"}}
    (manifest,) = declared_clusters({"deployment": {"resources": [default], "pending_operations": [only]}})
    assert (manifest.cluster, manifest.region) == ("train", "us-east-2")
    label = {"everspot-cluster": "train"}
    groups = resource("gcp:compute/disk:Disk", "projects/p/zones/z/disks/d", labels=label, project="p")
    net = resource("gcp:compute/address:Address", "projects/p/regions/r/addresses/a", labels=label, region="r")
    (manifest,) = declared_clusters({"deployment": {"resources": [groups, net]}})
    assert (manifest.cloud, manifest.cluster, manifest.region, manifest.account) == ("gcp", "train", "r", "p")
    assert {"d", "projects/p/zones/z/disks/d", "a"} <= list_ids({"deployment": {"resources": [groups, net]}})


@pytest.mark.parametrize("state", [{}, {"deployment": None}, {"deployment": {"resources": [{"type": None}, {}]}}])
def test_a_stack_without_a_cluster_has_none(state: dict[str, Any]) -> None:
    assert declared_clusters(state) == []
    assert list_ids(state) == frozenset()
