"""A whole cluster under mocks: exactly these children, with exactly what keeps them safe."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from everspot import AwsTrainingCluster, AwsTrainingClusterArgs
from everspot.aws import policies
from everspot_core.capacity.launching import store_mark
from federated_pair import ON_GOOGLE

Declare = Callable[..., tuple[Any, dict[str, Any]]]
Cluster = Callable[..., Any]

BUCKET = {
    "": "bucket:Bucket",
    "-private": "bucketPublicAccessBlock:BucketPublicAccessBlock",
    "-tls": "bucketPolicy:BucketPolicy",
    "-encryption": "bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    "-lifecycle": "bucketLifecycleConfiguration:BucketLifecycleConfiguration",
}
RULES = ("interruption", "rebalance", "state", "fleet-error")
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
ENDPOINTS = {"s3", "ec2", "sqs", "sts"}
EXPECTED = {
    "train": "everspot:index:AwsTrainingCluster",
    "train-events": "everspot:index:AwsInterruptionEvents",
    "train-store": "everspot:index:AwsStore",
    "train-network": "everspot:index:AwsNetwork",
    "train-identity": "everspot:index:AwsIdentity",
    "train-fleet": "everspot:index:AwsTrainingFleet",
    "train-scheduler": "everspot:index:AwsSchedulerService",
    "train-guard": "pulumi:index:Stash",
    "train-place": "pulumi:index:Stash",
    "train-declared": "aws:s3/bucketObjectv2:BucketObjectv2",
    "train-manifest": "aws:s3/bucketObjectv2:BucketObjectv2",
    "train-events-queue": "aws:sqs/queue:Queue",
    "train-events-dead": "aws:sqs/queue:Queue",
    "train-events-redrive": "aws:sqs/redrivePolicy:RedrivePolicy",
    "train-events-policy": "aws:sqs/queuePolicy:QueuePolicy",
    **{f"train-events-{r}": "aws:cloudwatch/eventRule:EventRule" for r in RULES},
    **{f"train-events-{r}-target": "aws:cloudwatch/eventTarget:EventTarget" for r in RULES},
    **{f"train-store-{b}{suffix}": f"aws:s3/{kind}" for b in ("control", "data") for suffix, kind in BUCKET.items()},
    "train-store-data-versioning": "aws:s3/bucketVersioning:BucketVersioning",
    "train-network-vpc": "aws:ec2/vpc:Vpc",
    "train-network-routes": "aws:ec2/routeTable:RouteTable",
    "train-network-default": "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
    **{f"train-network-subnet-eu-west-1{z}": "aws:ec2/subnet:Subnet" for z in "ab"},
    **{f"train-network-routes-eu-west-1{z}": "aws:ec2/routeTableAssociation:RouteTableAssociation" for z in "ab"},
    **{f"train-network-endpoint-{s}": "aws:ec2/vpcEndpoint:VpcEndpoint" for s in ENDPOINTS},
    **{f"train-network-{g}": "aws:ec2/securityGroup:SecurityGroup" for g in ("instances", "endpoints")},
    **{f"train-network-out-{to}": EGRESS for to in ("s3", "endpoints")},
    "train-network-in-endpoints": "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    **{f"train-identity-{r}": "aws:iam/role:Role" for r in ("agent", "scheduler", "job")},
    **{f"train-identity-{r}-permissions": "aws:iam/rolePolicy:RolePolicy" for r in ("agent", "scheduler", "job")},
    "train-identity-agent-takes-job": "aws:iam/rolePolicy:RolePolicy",
    **{f"train-identity-{r}-profile": "aws:iam/instanceProfile:InstanceProfile" for r in ("agent", "scheduler")},
    **{f"train-{c}-template": "aws:ec2/launchTemplate:LaunchTemplate" for c in ("fleet", "scheduler")},
    **{f"train-fleet-{market}": "aws:ec2/fleet:Fleet" for market in ("on-demand", "spot")},
    "train-scheduler-group": "aws:autoscaling/group:Group",
}  # fmt: skip


def cluster_outputs(args: AwsTrainingClusterArgs) -> dict[str, Any]:
    cluster = AwsTrainingCluster("train", args)
    return {name: getattr(cluster, name) for name in AwsTrainingCluster.__annotations__}


@pytest.fixture
def cluster(declare: Declare, spec: AwsTrainingClusterArgs) -> Cluster:
    """What a cluster registers, with the spec changed by keyword."""

    def build(**changes: Any) -> Any:
        args: Any = {key: value for key, value in {**spec, **changes}.items() if value is not None}
        return declare(lambda: cluster_outputs(args))[0]

    return build


@pytest.mark.parametrize("preview", [False, True], ids=["update", "preview"])
def test_exactly_these_children_are_registered(declare: Declare, spec: AwsTrainingClusterArgs, preview: bool) -> None:
    recorder, _ = declare(lambda: cluster_outputs(spec), preview=preview)
    assert recorder.types_by_name() == EXPECTED
    assert len(recorder.resources) == len(EXPECTED)


def test_outputs_lead_to_the_parts(declare: Declare, spec: AwsTrainingClusterArgs) -> None:
    _, outputs = declare(lambda: cluster_outputs(spec))
    assert outputs["cluster"] == "train"
    assert outputs["control_url"] == "s3://train-store-control-id?region=eu-west-1"
    assert outputs["data_url"] == "s3://train-store-data-id?region=eu-west-1"
    assert outputs["queue_url"] == "https://queue/train-events-queue"
    assert (outputs["on_demand_fleet_id"], outputs["spot_fleet_id"]) == (
        "train-fleet-on-demand-id",
        "train-fleet-spot-id",
    )
    assert outputs["subnet_ids"] == [f"train-network-subnet-eu-west-1{z}-id" for z in "ab"]
    assert outputs["region"] == "eu-west-1"
    assert None not in outputs.values()


def test_the_two_manifests_and_cluster_json_tell_each_reader_what_it_needs(cluster: Cluster) -> None:
    recorder = cluster(limits={"lease_ttl": "15s", "beat_every": "5s"})
    agent = user_data(recorder.inputs("train-fleet-template"))
    scheduler = user_data(recorder.inputs("train-scheduler-template"))
    published = json.loads(recorder.inputs("train-manifest")["content"])
    assert (agent["role"], scheduler["role"], published["role"]) == ("agent", "scheduler", "agent")
    assert "queue_url" not in agent
    assert scheduler["queue_url"] == published["queue_url"] == "https://queue/train-events-queue"
    assert agent["limits"]["lease_ttl"] == 15
    assert agent["control_url"] == published["control_url"] == "s3://train-store-control-id?region=eu-west-1"
    assert recorder.inputs("train-manifest")["key"] == "cluster.json"
    assert agent["generation"] and agent["generation"] == scheduler["generation"] == published["generation"]
    assert published["standing"] == {
        "on_demand_units": 1, "spot_units": 4, "weights": {"m6i.large": 1, "c6i.large": 1, "m7i.large": 1},
    }  # fmt: skip
    assert published["fleet"]["types"] == ["c6i.large", "m6i.large", "m7i.large"]
    assert published["fleet"]["markets"] == ["on-demand", "spot"]
    assert not {"standing", "fleet"} & {key for m in (agent, scheduler) for key, value in m.items() if value}
    assert "standing" not in {*agent, *scheduler}  # a change of size must not change what instances get


def test_the_weights_of_teams_are_published_and_change_nothing_that_an_instance_is_launched_with(
    cluster: Cluster,
) -> None:
    before, after = cluster(), cluster(shares={"vision": 2, "audio & speech": 0.5})
    published = [json.loads(recorder.inputs("train-manifest")["content"]) for recorder in (before, after)]
    assert [manifest["shares"] for manifest in published] == [{}, {"vision": 2, "audio & speech": 0.5}]
    for template in ("train-fleet-template", "train-scheduler-template"):
        assert before.inputs(template) == after.inputs(template)
        assert not user_data(after.inputs(template)).get("shares")


def test_the_team_of_the_stack_is_published_for_its_jobs_and_not_for_instances(cluster: Cluster) -> None:
    recorder = cluster()
    assert json.loads(recorder.inputs("train-manifest")["content"])["team"] == "ml"
    for template in ("train-fleet-template", "train-scheduler-template"):
        assert "team" not in user_data(recorder.inputs(template))


def test_what_counts_as_an_anomaly_is_published_and_changes_nothing_that_an_instance_is_launched_with(
    cluster: Cluster,
) -> None:
    before, after = cluster(), cluster(anomalies={"idle_for": "30m", "team_usd": 50})
    published = [json.loads(recorder.inputs("train-manifest")["content"]) for recorder in (before, after)]
    assert "anomalies" not in published[0]
    assert published[1]["anomalies"] == {
        "job_times": 2, "team_spreads": 4, "team_share": 0.5, "team_usd": 50, "idle_for": 1800, "idle_share": 0.5,
        "price_times": 2,
    }  # fmt: skip
    for template in ("train-fleet-template", "train-scheduler-template"):
        assert before.inputs(template) == after.inputs(template)


def test_sharing_instances_is_published_and_changes_nothing_that_an_instance_is_launched_with(cluster: Cluster) -> None:
    before, after = cluster(), cluster(shared_instances=True)
    published = [json.loads(recorder.inputs("train-manifest")["content"]) for recorder in (before, after)]
    assert [manifest["shared_instances"] for manifest in published] == [False, True]
    for template in ("train-fleet-template", "train-scheduler-template"):
        assert before.inputs(template) == after.inputs(template)


def test_nothing_that_launches_instances_is_made_before_they_can_reach_what_they_need(
    cluster: Cluster, waits: dict[str, set[str]]
) -> None:
    cluster()
    ways = {*(f"train-network-endpoint-{service}" for service in ENDPOINTS), "train-network-out-s3"}
    for launches in ("train-fleet-on-demand", "train-fleet-spot", "train-scheduler-group"):
        assert ways <= waits[launches], launches


def test_sizes_change_nothing_that_an_instance_is_launched_with(cluster: Cluster, spec: AwsTrainingClusterArgs) -> None:
    before = cluster()
    after = cluster(
        capacity={**spec["capacity"], "standing": {"target": 9, "on_demand_base": 3, "on_demand_percentage": 20}}
    )
    for template in ("train-fleet-template", "train-scheduler-template"):
        assert before.inputs(template) == after.inputs(template)
    published = json.loads(after.inputs("train-manifest")["content"])
    assert (published["standing"]["on_demand_units"], published["standing"]["spot_units"]) == (5, 4)


@pytest.mark.parametrize(
    "changes",
    [
        {"image_id": "ami-2"},
        {"volume_gib": 200},
        {"limits": {"stop_margin": "9s"}},
        {
            "capacity": {
                "standing": {"target": 5},
                "instance_types": [{"type": "m6i.large", "memory_gib": 9, "override": True}],
            }
        },
    ],
    ids=["image", "machine", "limits", "declared type"],
)
def test_what_an_instance_is_launched_with_makes_a_generation(cluster: Cluster, changes: dict[str, Any]) -> None:
    def generation(recorder: Any) -> set[str]:
        published = json.loads(recorder.inputs("train-manifest")["content"])
        return {published["generation"], user_data(recorder.inputs("train-fleet-template"))["generation"]}

    before, after = generation(cluster()), generation(cluster(**changes))
    assert len(before) == len(after) == 1
    assert before != after


@pytest.mark.parametrize(("types", "scheduler", "standard"), [
    (["m6i.large", "g5.xlarge"], "m6i.large", (False, False)),
    (["m6i.large"], "t3.micro", (False, True)),
])  # fmt: skip
def test_burstable_types_are_billed_at_their_price(
    cluster: Cluster, types: list[str], scheduler: str, standard: tuple[bool, bool]
) -> None:
    """EC2 launches T3 as unlimited otherwise, and refuses the setting for every other type."""
    entries = [{"type": name} for name in types]
    recorder = cluster(capacity={"instance_types": entries, "standing": {"target": 1}}, scheduler_type=scheduler)
    templates = [recorder.inputs(f"train-{part}-template") for part in ("fleet", "scheduler")]
    credit_options = [template.get("creditSpecification") for template in templates]
    assert credit_options == [{"cpuCredits": "standard"} if on else None for on in standard]
    # Without a type the provider leaves the setting out (expandRequestLaunchTemplateData of terraform-provider-aws).
    assert all(template.get("instanceType") for template in templates if "creditSpecification" in template)


def test_instances_are_closed(cluster: Cluster) -> None:
    recorder = cluster()
    for template in recorder.of_type("aws:ec2/launchTemplate:LaunchTemplate"):
        inputs = template.inputs
        assert inputs["metadataOptions"] == {
            "httpEndpoint": "enabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 1,
        }
        assert inputs["instanceInitiatedShutdownBehavior"] == "terminate"
        (nic,) = inputs["networkInterfaces"]
        assert nic["associatePublicIpAddress"] == "false"
        assert nic["securityGroups"] == ["train-network-instances-id"]
        (disk,) = inputs["blockDeviceMappings"]
        assert disk["deviceName"] == "/dev/xvda"  # as the image calls its root
        assert (disk["ebs"]["encrypted"], disk["ebs"]["volumeType"]) == ("true", "gp3")
        assert {"keyName", "instanceMarketOptions"}.isdisjoint(inputs)
    assert all(s.inputs["mapPublicIpOnLaunch"] is False for s in recorder.of_type("aws:ec2/subnet:Subnet"))


def test_instances_and_volumes_carry_the_tags_by_which_they_are_found_and_billed(cluster: Cluster) -> None:
    recorder = cluster()
    for name, role in (("train-fleet-template", "agent"), ("train-scheduler-template", "scheduler")):
        specs = {s["resourceType"]: s["tags"] for s in recorder.inputs(name)["tagSpecifications"]}
        assert set(specs) == {"instance", "volume"}
        for tags in specs.values():
            assert tags["everspot:cluster"] == "train"
            assert tags["everspot:role"] == role
            assert {"Project", "Team", "Environment"} <= set(tags)


def test_all_but_the_store_bears_the_mark_of_the_store(cluster: Cluster) -> None:
    """Another cluster of this name may be in the account."""
    recorder, marked, unmarked = cluster(), set(), set()
    for resource in recorder.resources:
        specs = [spec["tags"] for spec in resource.inputs.get("tagSpecifications") or ()]
        tags = resource.inputs.get("tags") or {}
        if isinstance(tags, list):
            tags = {tag["key"]: tag["value"] for tag in tags}
        for each in (tags, *specs):
            if "everspot:cluster" in each:
                (marked if each.get("everspot:store") == store_mark("s3://train-store-control-id") else unmarked).add(
                    resource.typ
                )
    assert unmarked == {"aws:s3/bucket:Bucket"}
    assert {kind.rpartition(":")[2] for kind in marked} >= {
        "Fleet", "Group", "LaunchTemplate", "Vpc", "Subnet", "SecurityGroup", "VpcEndpoint", "Queue", "Role",
    }  # fmt: skip


def test_security_groups_open_port_443_to_endpoints_and_s3_and_nothing_else(cluster: Cluster) -> None:
    recorder = cluster()
    rules = [r for r in recorder.resources if r.typ.startswith("aws:vpc/securityGroup")]
    assert len(rules) == 3
    assert all((r.inputs["fromPort"], r.inputs["toPort"], r.inputs["ipProtocol"]) == (443, 443, "tcp") for r in rules)
    assert recorder.inputs("train-network-out-s3")["prefixListId"] == "pl-s3"
    assert recorder.inputs("train-network-out-endpoints")["referencedSecurityGroupId"] == "train-network-endpoints-id"
    assert recorder.inputs("train-network-in-endpoints")["referencedSecurityGroupId"] == "train-network-instances-id"
    assert all(
        {"ingress", "egress"}.isdisjoint(g.inputs) for g in recorder.of_type("aws:ec2/securityGroup:SecurityGroup")
    )


def test_buckets_are_private_and_encrypted_and_keep_no_versions(cluster: Cluster) -> None:
    recorder = cluster()
    for bucket in ("train-store-control", "train-store-data"):
        closed = recorder.inputs(f"{bucket}-private")
        assert all(
            closed[k] for k in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
        )
        policy = json.loads(recorder.inputs(f"{bucket}-tls")["policy"])
        assert policy["Statement"][0]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        assert policy["Statement"][0]["Effect"] == "Deny"
        assert recorder.inputs(bucket)["forceDestroy"] is False
    assert "train-store-control-versioning" not in recorder.types_by_name()
    assert len(recorder.inputs("train-store-control-lifecycle")["rules"]) == 1
    assert recorder.inputs("train-store-data-versioning")["versioningConfiguration"] == {"status": "Suspended"}
    rules = {r["id"]: r for r in recorder.inputs("train-store-data-lifecycle")["rules"]}
    assert set(rules) == {"unfinished-uploads", "old-versions", "agent-logs"}
    assert rules["old-versions"]["noncurrentVersionExpiration"] == {"noncurrentDays": 7}
    assert rules["old-versions"]["expiration"] == {"expiredObjectDeleteMarker": True}
    rules = {r["id"]: r for r in cluster(jobs_expire_days=90).inputs("train-store-data-lifecycle")["rules"]}
    assert (rules["old-jobs"]["filter"], rules["old-jobs"]["expiration"]) == ({"prefix": "jobs/"}, {"days": 90})


def test_a_customer_key_brings_its_encryption_and_its_permission(cluster: Cluster) -> None:
    recorder = cluster(kms_key_arn="arn:aws:kms:eu-west-1:111122223333:key/k")
    assert recorder.types_by_name() == EXPECTED  # no endpoint: S3 calls KMS, not the instances
    (rule,) = recorder.inputs("train-store-data-encryption")["rules"]
    assert rule["applyServerSideEncryptionByDefault"]["sseAlgorithm"] == "aws:kms"
    for role in ("agent", "scheduler"):
        policy = json.loads(recorder.inputs(f"train-identity-{role}-permissions")["policy"])
        (use,) = [s for s in policy["Statement"] if s["Sid"] == "UseTheKey"]
        assert use["Resource"] == ["arn:aws:kms:eu-west-1:111122223333:key/k"]


@pytest.mark.parametrize("key", [{"kms_key_arn": "arn:aws:kms:eu-west-1:111122223333:key/new"}, {}])
def test_every_role_may_still_read_what_earlier_keys_encrypt(cluster: Cluster, key: dict[str, str]) -> None:
    former = ["arn:aws:kms:eu-west-1:111122223333:key/old", "arn:aws:kms:eu-west-1:111122223333:key/older"]
    recorder = cluster(**key, former_kms_key_arns=former, federation=[ON_GOOGLE])
    roles = ("identity-agent", "identity-job", "identity-scheduler", f"peer-{ON_GOOGLE['name']}")
    for role in roles:
        policy = json.loads(recorder.inputs(f"train-{role}-permissions")["policy"])
        (read,) = [s for s in policy["Statement"] if s["Sid"] == "ReadUnderFormerKeys"]
        assert (read["Action"], read["Resource"]) == (["kms:Decrypt"], former)


def test_what_the_cluster_is_declared_to_be_is_published_behind_its_fleets(
    cluster: Cluster, waits: dict[str, set[str]]
) -> None:
    cluster()
    assert {"train-fleet-on-demand", "train-fleet-spot"} <= waits["train-manifest"]


def test_what_keeps_instances_running_is_published_by_its_names(cluster: Cluster) -> None:
    recorder = cluster()
    assert recorder.inputs("train-declared")["key"] == "declared.json"
    declared = json.loads(recorder.inputs("train-declared")["content"])["capacity"]
    assert len(declared) == 3 and any("fleet-spot" in name for name in declared), declared


def test_a_permissions_boundary_limits_all_roles(cluster: Cluster) -> None:
    recorder = cluster(permissions_boundary_arn="arn:aws:iam::111122223333:policy/edge")
    roles = recorder.of_type("aws:iam/role:Role")
    assert [r.inputs["permissionsBoundary"] for r in roles] == ["arn:aws:iam::111122223333:policy/edge"] * 3


def test_only_the_rules_may_send_to_the_queue(cluster: Cluster) -> None:
    recorder = cluster()
    send, deny = json.loads(recorder.inputs("train-events-policy")["policy"])["Statement"]
    rules = [f"arn:train-events-{r}" for r in RULES]
    assert send["Condition"] == {"ArnEquals": {"aws:SourceArn": rules}}
    assert (send["Principal"], send["Action"]) == ({"Service": "events.amazonaws.com"}, "sqs:SendMessage")
    assert (deny["Effect"], deny["Sid"]) == ("Deny", "TlsOnly")
    assert all(q.inputs["sqsManagedSseEnabled"] for q in recorder.of_type("aws:sqs/queue:Queue"))


def test_without_interruption_events_there_is_no_queue_no_way_to_it_and_no_permission(cluster: Cluster) -> None:
    recorder = cluster(interruption_events=False)
    left_out = {name for name in EXPECTED if name.startswith("train-events")} | {"train-network-endpoint-sqs"}
    assert recorder.types_by_name() == {name: kind for name, kind in EXPECTED.items() if name not in left_out}
    for template in ("train-fleet-template", "train-scheduler-template"):
        assert user_data(recorder.inputs(template)).get("queue_url") is None
    policy = recorder.inputs("train-identity-scheduler-permissions")["policy"]
    assert "sqs:" not in policy
    own = policies.scheduler_policy(cluster="train", control_arn="arn:aws:s3:::control")["Statement"]
    assert [s["Resource"] for s in own if s["Sid"] == "TagVolumes"] == [["arn:aws:ec2:*:*:volume/*"]]


def test_without_a_role_for_jobs_there_is_no_endpoint_for_it_and_agents_assume_none(cluster: Cluster) -> None:
    recorder = cluster(job_role=False)
    left_out = {name for name in EXPECTED if "-job" in name} | {"train-network-endpoint-sts"}
    assert len(left_out) == 4
    assert recorder.types_by_name() == {name: kind for name, kind in EXPECTED.items() if name not in left_out}
    for template in ("train-fleet-template", "train-scheduler-template"):
        assert "job_role" not in user_data(recorder.inputs(template))
    assert "sts:" not in recorder.inputs("train-identity-agent-permissions")["policy"]


def test_an_image_parameter_is_read_at_preview(declare: Declare, spec: AwsTrainingClusterArgs) -> None:
    del spec["image_id"]
    spec["image_parameter"] = "/everspot/image"
    recorder, outputs = declare(lambda: cluster_outputs(spec), preview=True)
    assert outputs["image_id"] == "ami-fromparameter"
    assert recorder.inputs("train-fleet-template")["imageId"] == "ami-fromparameter"


def user_data(template: dict[str, Any]) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(base64.b64decode(template["userData"]))
    return decoded
