"""The effects of a change on jobs and on stored data, on both clouds."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from everspot_clouds.registry import resource_kinds
from everspot_core.capacity.market import Market
from everspot_core.cluster.declared import UNKNOWN
from everspot_review.event_log import LoggedStep, ResourceState
from everspot_review.events import read
from everspot_review.jobs import RunningJobs, effects
from everspot_review.judge import judge
from everspot_review.report import EnvironmentReport

END = '{"summaryEvent":{"result":"succeeded"}}'
SPOT = "everspot-local-fleet-spot"
FLEET, TEMPLATE = "aws:ec2/fleet:Fleet", "aws:ec2/launchTemplate:LaunchTemplate"
ASG = "aws:autoscaling/group:Group"
SPOT_REQUEST = "aws:ec2/spotFleetRequest:SpotFleetRequest"
VOLUME = "kubernetes:core/v1:PersistentVolume"
NODE_POOL = "kubernetes:karpenter.sh/v1:NodePool"
GROUP = "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager"
GTEMPLATE = "gcp:compute/regionInstanceTemplate:RegionInstanceTemplate"
SIZE = "targetCapacitySpecification.totalTargetCapacity"
UP = {"diffKind": "update"}


def list_effects(report: EnvironmentReport) -> dict[str, list[tuple[str, bool]]]:
    effects: dict[str, list[tuple[str, bool]]] = {}
    for effect in report.effects:
        effects.setdefault(effect.resource, []).append((effect.text, effect.harm))
    return effects


def test_replacing_a_fleet_tells_how_many_jobs_would_be_drained(report: Callable[..., EnvironmentReport]) -> None:
    text = "replaces the fleet and ends its instances: {} would be drained."
    assert list_effects(report("aws-replace"))[SPOT] == [(text.format("3 jobs running now"), True)]
    nobody_asked = report("aws-replace", running=None)
    assert list_effects(nobody_asked)[SPOT] == [(text.format("jobs running on them"), True)]
    replacement = report("aws-replace", running=RunningJobs({Market.SPOT: 1, Market.ON_DEMAND: 5}))
    assert list_effects(replacement)[SPOT] == [(text.format("1 job running now"), True)]


def test_where_no_job_runs_nothing_is_harmed_now(report: Callable[..., EnvironmentReport]) -> None:
    idle = report("aws-replace", running=RunningJobs({Market.ON_DEMAND: 2}))
    assert list_effects(idle)[SPOT] == [("replaces the fleet and ends its instances; no job runs on them now.", False)]


def test_sizes_on_aws_end_no_busy_instance(report: Callable[..., EnvironmentReport]) -> None:
    assert list_effects(report("aws-target-down"))[SPOT] == [("lower target, 4 → 1: it ends no busy instance.", False)]
    assert list_effects(report("aws-target-up"))[SPOT] == [
        ("higher target, 4 → 7: nothing that runs is touched.", False)
    ]


def test_a_new_template_reaches_instances_as_they_are_replaced(report: Callable[..., EnvironmentReport]) -> None:
    aws, gcp = list_effects(report("aws-template")), list_effects(report("gcp-template"))
    fleet = ("its new template reaches instances as they are replaced; none is ended for it.", False)
    scheduler = ("the scheduler is replaced: jobs run on, and none is placed until the new one is up.", False)
    template = ("what instances are launched with changes: it reaches instances as they are replaced.", False)
    assert aws[SPOT] == gcp["everspot-local-gcp-fleet-spot"] == [fleet]
    assert aws["everspot-local-scheduler-group"] == gcp["everspot-local-gcp-scheduler-group"] == [scheduler]
    assert aws["everspot-local-fleet-template"] == gcp["everspot-local-gcp-fleet-spot-agent"] == [template]
    assert "everspot-local-scheduler-template" not in aws  # told once, of its group


def test_a_destroy_tells_what_is_lost_and_what_is_kept(report: Callable[..., EnvironmentReport]) -> None:
    effects = list_effects(report("gcp-destroy"))
    assert effects["everspot-local-gcp-store-data"] == [("deleted: all objects in it would be lost.", True)]
    assert effects["everspot-local-gcp-scheduler-group"] == [
        ("there is no scheduler then: jobs that run go on, and no other one begins.", False)
    ]
    assert effects["everspot-local-gcp-fleet-spot"] == [("deletes the fleet, which has no instances.", False)]
    aws_effects = list_effects(report("aws-destroy"))["everspot-local-store-data"]
    assert aws_effects == [
        ("deleted here only: it stays in the cloud, and Pulumi knows nothing of it any more.", False)
    ]


def test_protection_that_ends_is_a_harm(report: Callable[..., EnvironmentReport]) -> None:
    replacement = report("aws-replace-unprotected")
    assert list_effects(replacement)["everspot-local-fleet-on-demand"] == [
        ("no longer protected: a later change may delete or replace it.", True)
    ]
    (step,) = [step for step in replacement.steps if step.name == "everspot-local-fleet-on-demand"]
    assert [(c.path, c.before, c.after) for c in step.changes] == [("(protected)", "true", "false")]


def test_protection_that_ends_beside_another_change_is_a_harm_too() -> None:
    urn = "urn:pulumi:dev::p::aws:s3/bucket:Bucket::data"
    sides = {
        side: {"urn": urn, "type": "aws:s3/bucket:Bucket", "custom": True, "inputs": inputs, "protect": protect}
        for side, inputs, protect in (("old", {"tags": {}}, True), ("new", {"tags": {"Team": "ml"}}, False))
    }
    metadata = {"op": "update", "urn": urn, "type": "aws:s3/bucket:Bucket", "detailedDiff": {"tags": UP}, **sides}
    log = read([json.dumps({"resourcePreEvent": {"metadata": metadata}}), END])
    environment_report = judge(log, environment="dev", stack="dev", kinds=resource_kinds())
    assert list_effects(environment_report) == {
        "data": [("no longer protected: a later change may delete or replace it.", True)]
    }


LIFECYCLE = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"
GBUCKET = "gcp:storage/bucket:Bucket"
FIRST = "objects of every name are deleted 1 days after they were written (never before), those that are there too."


def s3_rules(prefix: str, days: int, status: str = "Enabled") -> dict[str, Any]:
    return {"rules": [{"status": status, "filter": {"prefix": prefix}, "expiration": {"days": days}}]}


def size(value: Any) -> dict[str, Any]:
    return {"targetCapacitySpecification": {"totalTargetCapacity": value}}


def limits(least: int, most: int, **policy: Any) -> dict[str, Any]:
    return {"autoscalingPolicy": {"minReplicas": least, "maxReplicas": most, **policy}}


IN_ANY_PROGRAM: dict[str, tuple[dict[str, Any], list[tuple[str, bool]]]] = {
    "a fleet that EC2 may shrink": (
        {"type": FLEET, "old": size(5), "new": size(2), "detailedDiff": {SIZE: UP}},
        [("lower target, 5 → 2: it ends instances of EC2's choice at once, busy or not: up to 4 jobs running now may be"
          " on them.", True)],
    ),
    "a size that is not known": (
        {"type": FLEET, "old": size(5), "new": size(UNKNOWN), "detailedDiff": {SIZE: UP}},
        [],
    ),
    "a group of Google's that is made smaller": (
        {"type": GROUP, "name": "g-on-demand", "old": {"targetSize": 3}, "new": {"targetSize": 0},
         "detailedDiff": {"targetSize": UP}},
        [("lower target, 3 → 0: it ends instances of the group's choice at once, busy or not: 1 job running now may be"
          " on them.", True)],
    ),
    "a group that rolls": (
        {"type": GROUP, "new": {"updatePolicy": {"type": "PROACTIVE"}},
         "detailedDiff": {"versions[0].instanceTemplate": UP}},
        [("the new template replaces its instances at once, one after another: up to 4 jobs running now would be"
          " drained.", True)],
    ),
    "other types": (
        {"type": FLEET, "detailedDiff": {"launchTemplateConfigs[0].overrides[3].instanceType": UP}},
        [("other types or zones: they hold for what is launched from now on.", False)],
    ),
    "a lower maximum of an autoscaler of Google's": (
        {"type": "gcp:compute/regionAutoscaler:RegionAutoscaler", "old": limits(1, 8), "new": limits(1, 2),
         "detailedDiff": {"autoscalingPolicy.maxReplicas": UP}},
        [("lower maximum, 8 → 2: if more run, it ends instances of the autoscaler's choice at once: up to 4 jobs "
          "running now may be on them.", True)],
    ),
    "limits of an autoscaler that both change": (
        {"type": "gcp:compute/autoscaler:Autoscaler", "old": limits(1, 8), "new": limits(2, 4),
         "detailedDiff": {"autoscalingPolicy.maxReplicas": UP}},
        [("lower maximum, 8 → 4: if more run, it ends instances of the autoscaler's choice at once: up to 4 jobs "
          "running now may be on them.", True)],
    ),
    "an autoscaler that ends nothing": (
        {"type": "gcp:compute/autoscaler:Autoscaler", "old": limits(1, 8), "new": limits(1, 2, mode="ONLY_SCALE_OUT"),
         "detailedDiff": {"autoscalingPolicy.maxReplicas": UP}},
        [],
    ),
    "an autoscaler that is deleted": (
        {"type": "gcp:compute/autoscaler:Autoscaler", "op": "delete", "old": limits(1, 8)},
        [("deletes the fleet: its instances run on, and cost, until somebody ends them.", False)],
    ),
    "a new image on AWS": (
        {"type": TEMPLATE, "detailedDiff": {"imageId": UP}},
        [("new image: it reaches instances as they are replaced.", False)],
    ),
    "a new image on Google Cloud": (
        {"type": GTEMPLATE, "op": "replace", "detailedDiff": {"disks[0].sourceImage": {"diffKind": "update-replace"}}},
        [("new image: it reaches instances as they are replaced.", False)],
    ),
    "a bucket that is emptied first": (
        {"op": "delete", "old": {"forceDestroy": True}},
        [("deleted: all objects in it would be lost.", True)],
    ),
    "a bucket that is not": (
        {"op": "delete"},
        [("deleted: the cloud refuses that unless it is empty; all objects in it would be lost.", True)],
    ),
    "a database that is replaced": (
        {"op": "replace", "type": "aws:rds/instance:Instance"},
        [("replaced: its databases would be lost.", True)],
    ),
    "a bucket that changes": ({"detailedDiff": {"tags": UP}}, []),
    "a smaller limit of nodes": (
        {"type": NODE_POOL, "old": {"spec": {"limits": {"nodes": 8}}}, "new": {"spec": {"limits": {"nodes": 2}}},
         "detailedDiff": {"spec.limits.nodes": UP}},
        [("lower target, 8 → 2: it ends no busy instance.", False)],
    ),
    "a node pool that is deleted": (
        {"type": NODE_POOL, "op": "delete", "old": {"spec": {"limits": {"nodes": 8}}}},
        [("deletes the fleet and ends its instances: up to 4 jobs running now would be drained.", True)],
    ),
    "a new image on Kubernetes": (
        {"type": "kubernetes:core/v1:PodTemplate", "op": "replace",
         "detailedDiff": {"template.spec.containers[0].image": {"diffKind": "update-replace"}}},
        [("new image: it reaches instances as they are replaced.", False)],
    ),
    "a namespace that is deleted": (
        {"type": "kubernetes:core/v1:Namespace", "op": "delete"},
        [("deleted: all objects in it and the work of running jobs would be lost.", True)],
    ),
    "a new fleet": ({"op": "create", "type": FLEET, "new": size(5)}, []),
    "a fleet whose instances outlive it": (
        {"type": FLEET, "op": "delete", "old": size(5)},
        [("deletes the fleet: its instances run on, and cost, until somebody ends them.", False)],
    ),
    "a fleet that ends its instances": (
        {"type": FLEET, "op": "delete", "old": {**size(5), "terminateInstances": True}},
        [("deletes the fleet and ends its instances: up to 4 jobs running now would be drained.", True)],
    ),
    "a fleet that is only taken out of the state": (
        {"type": FLEET, "op": "delete", "old": {**size(5), "terminateInstances": True},
         "old_flags": {"retainOnDelete": True}},
        [("deletes the fleet here only: it keeps its instances running, and they cost.", False)],
    ),
    "a subnet that is only taken out of the state": (
        {"type": "aws:ec2/subnet:Subnet", "op": "replace", "old_flags": {"retainOnDelete": True},
         "new_flags": {"retainOnDelete": True}}, [],
    ),
    "a group with a smaller maximum": (
        {"type": ASG, "old": {"maxSize": 9}, "new": {"maxSize": 4}, "detailedDiff": {"maxSize": UP}},
        [("lower maximum, 9 → 4: if more run, it ends instances of EC2 Auto Scaling's choice at once: up to 4 jobs"
          " running now may be on them.", True)],
    ),
    "a group whose target falls to its new maximum": (
        {"type": ASG, "old": {"maxSize": 9, "desiredCapacity": 9}, "new": {"maxSize": 4, "desiredCapacity": 4},
         "detailedDiff": {"maxSize": UP, "desiredCapacity": UP}},
        [("lower target, 9 → 4: it ends instances of EC2 Auto Scaling's choice at once, busy or not: up to 4 jobs"
          " running now may be on them.", True)],
    ),
    "a group with a larger maximum": (
        {"type": ASG, "old": {"maxSize": 4}, "new": {"maxSize": 9}, "detailedDiff": {"maxSize": UP}}, [],
    ),
    "a node group that is deleted": (
        {"type": "aws:eks/nodeGroup:NodeGroup", "op": "delete", "old": {"scalingConfig": {"desiredSize": 2}}},
        [("deletes the fleet and ends its instances: up to 4 jobs running now would be drained.", True)],
    ),
    "a node pool of Google's with a new version": (
        {"type": "gcp:container/nodePool:NodePool", "detailedDiff": {"version": UP}},
        [("the new template replaces its instances at once, one after another: up to 4 jobs running now would be"
          " drained.", True)],
    ),
    "a Spot fleet request that is made smaller": (
        {"type": SPOT_REQUEST, "old": {"targetCapacity": 4}, "new": {"targetCapacity": 1},
         "detailedDiff": {"targetCapacity": UP}},
        [("lower target, 4 → 1: it ends instances of EC2's choice at once, busy or not: up to 4 jobs running now may be"
          " on them.", True)],
    ),
    "a Spot fleet request that is deleted with its instances": (
        {"type": SPOT_REQUEST, "op": "delete", "old": {"targetCapacity": 4, "terminateInstancesOnDelete": "true"}},
        [("deletes the fleet and ends its instances: up to 4 jobs running now would be drained.", True)],
    ),
    "a Spot fleet request that is deleted without them": (
        {"type": SPOT_REQUEST, "op": "delete", "old": {"targetCapacity": 4, "terminateInstancesOnDelete": "false",
                                                       "terminateInstancesWithExpiration": True}},
        [("deletes the fleet: its instances run on, and cost, until somebody ends them.", False)],
    ),
    "a volume that is deleted with its storage": (
        {"type": VOLUME, "op": "delete", "old": {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}},
        [("deleted: what is on the volume would be lost.", True)],
    ),
    "a volume whose storage stays": (
        {"type": VOLUME, "op": "delete", "old": {"spec": {}}},
        [("deleted: what is on the volume stays, since spec.persistentVolumeReclaimPolicy is not Delete.", False)],
    ),
    "rules for a bucket that exists": (
        {"op": "create", "type": LIFECYCLE, "new": {"bucket": "data-1", **s3_rules("", 1)}},
        [(FIRST, True)],
    ),
    "rules for a new bucket": (
        {"op": "create", "type": LIFECYCLE, "new": {"bucket": UNKNOWN, **s3_rules("", 1)}}, [],
    ),
    "rules that move to another bucket": (
        {"op": "replace", "type": LIFECYCLE, "old": {"bucket": "data-1", **s3_rules("", 1)},
         "new": {"bucket": "data-2", **s3_rules("", 1)}},
        [(FIRST, True)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", IN_ANY_PROGRAM)
def test_of_any_program(case: str, step_line: Callable[..., str], kinds: Any, running: RunningJobs) -> None:
    step_fields, expected = IN_ANY_PROGRAM[case]
    environment_report = judge(
        read([step_line(**step_fields), END]), environment="dev", stack="dev", kinds=kinds, running=running
    )
    assert [(effect.text, effect.harm) for effect in environment_report.effects] == expected


def test_the_harmful_come_first(report: Callable[..., EnvironmentReport]) -> None:
    for name in ("gcp-destroy", "aws-destroy", "aws-replace-unprotected"):
        harms = [effect.harm for effect in report(name).effects]
        assert harms == sorted(harms, reverse=True)


def gcs_rules(days: int, **condition: Any) -> dict[str, Any]:
    return {"lifecycleRules": [{"action": {"type": "Delete"}, "condition": {"age": days, **condition}}]}


JOBS = {"matchesPrefixes": ["jobs/"]}
SOONER = "objects below jobs/ are deleted 30 days after they were written (365 before), those that are there too."
EMPTIED = "forceDestroy becomes true: a later deletion of the bucket also deletes all objects in it."


ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
LOST_KEY = "it may no longer decrypt with key/1: what that key encrypts cannot be read by it."


def decrypting(*keys: str) -> dict[str, Any]:
    statements = [{"Effect": "Allow", "Action": ["s3:GetObject", "kms:Decrypt"], "Resource": key} for key in keys]
    return {"policy": json.dumps({"Version": "2012-10-17", "Statement": statements})}


@pytest.mark.parametrize(
    ("kind", "old", "new", "texts"),
    [
        (LIFECYCLE, s3_rules("jobs/", 365), s3_rules("jobs/", 30), [SOONER]),
        (LIFECYCLE, s3_rules("jobs/", 30), s3_rules("jobs/", 365), []),
        (LIFECYCLE, s3_rules("jobs/", 365), s3_rules("jobs/", 30, "Disabled"), []),
        (LIFECYCLE, s3_rules("", 30), s3_rules("jobs/", 30), []),  # all objects had that limit
        (LIFECYCLE, {"rules": []}, s3_rules("", 1), [FIRST]),
        (GBUCKET, gcs_rules(365, **JOBS), gcs_rules(30, **JOBS), [SOONER]),
        (
            GBUCKET,
            gcs_rules(365, **JOBS),
            gcs_rules(30, **JOBS, withState="ARCHIVED"),
            [f"earlier versions of {SOONER}"],
        ),
        (GBUCKET, gcs_rules(30, **JOBS), gcs_rules(30, **JOBS, withState="ARCHIVED"), []),
        (GBUCKET, {}, gcs_rules(1), [FIRST]),
        (GBUCKET, {"forceDestroy": False}, {"forceDestroy": True}, [EMPTIED]),
        ("aws:s3/bucket:Bucket", {}, {"forceDestroy": True}, [EMPTIED]),
        ("aws:s3/bucket:Bucket", {"forceDestroy": True}, {"forceDestroy": False}, []),
        (
            "aws:s3/bucketVersioning:BucketVersioning",
            {"versioningConfiguration": {"status": "Enabled"}},
            {"versioningConfiguration": {"status": "Suspended"}},
            [
                "versioningConfiguration.status becomes suspended: earlier versions of what is written are no longer "
                "kept."
            ],
        ),
        (
            "aws:kms/key:Key",
            {},
            {"isEnabled": False},
            ["isEnabled becomes false: nothing that the key encrypts can be read."],
        ),
        (
            FLEET,
            {"excessCapacityTerminationPolicy": "no-termination"},
            {"excessCapacityTerminationPolicy": "termination"},
            [
                "excessCapacityTerminationPolicy becomes termination: a target below the number of running instances "
                "ends instances of EC2's choice, busy or not."
            ],
        ),
        (
            VOLUME,
            {"spec": {"persistentVolumeReclaimPolicy": "Retain"}},
            {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
            ["spec.persistentVolumeReclaimPolicy becomes delete: what is on the volume is deleted with its claim."],
        ),
        (ROLE_POLICY, decrypting("key/1"), decrypting("key/2"), [LOST_KEY]),
        (ROLE_POLICY, decrypting("key/1"), decrypting(), [LOST_KEY]),
        (ROLE_POLICY, decrypting("key/1"), decrypting("key/2", "key/1"), []),
        (ROLE_POLICY, decrypting("key/1"), decrypting("key/*"), []),
        (ROLE_POLICY, decrypting("key/1"), {"policy": UNKNOWN}, []),
    ],
)
def test_a_setting_by_which_data_is_lost_is_a_harm(
    kind: str, old: dict[str, Any], new: dict[str, Any], texts: list[str]
) -> None:
    before, after = (
        ResourceState(inputs=inputs, outputs={}, id="x", protected=False, retained=True, custom=True)
        for inputs in (old, new)
    )
    step = LoggedStep(f"urn:pulumi:prod::everspot::{kind}::store", kind, ("update",), before, after, {"any": "update"})
    assert [(e.text, e.harm) for e in effects((step,), resource_kinds())] == [(text, True) for text in texts]


S3_BUCKET = "aws:s3/bucket:Bucket"
NO_VERSIONS = "{} becomes false: earlier versions of what is written are no longer kept."
SOFT_DELETE = "softDeletePolicy.retentionDurationSeconds"
TAGGED = {"tag": {"key": "scratch", "value": "yes"}}
ON_A_DATE = "{} of every name are deleted {} ({}), those that are there too."


def s3_rule(filter: dict[str, Any], **rule: Any) -> dict[str, Any]:
    return {"rules": [{"status": "Enabled", "filter": filter, **rule}]}


def delete_if(**condition: Any) -> dict[str, Any]:
    return {"lifecycleRules": [{"action": {"type": "Delete"}, "condition": condition}]}


@pytest.mark.parametrize(
    ("kind", "old", "new", "text"),
    [
        (
            LIFECYCLE,
            {"rules": []},
            s3_rule({}, expiration={"date": "2026-12-01T00:00:00Z"}),
            ON_A_DATE.format("objects", "from 2026-12-01 on, whatever their age", "never before"),
        ),
        (
            LIFECYCLE,
            s3_rule({}, expiration={"date": "2027-01-01T00:00:00Z"}),
            s3_rule({}, expiration={"date": "2026-12-01T00:00:00Z"}),
            ON_A_DATE.format(
                "objects",
                "from 2026-12-01 on, whatever their age",
                "before: from 2027-01-01 on, whatever their age",
            ),
        ),
        (
            LIFECYCLE,
            s3_rule({}, expiration={"date": "2026-12-01T00:00:00Z"}),
            s3_rule({}, expiration={"date": "2027-01-01T00:00:00Z"}),
            None,
        ),
        (
            LIFECYCLE,
            s3_rule({}, noncurrentVersionExpiration={"noncurrentDays": 365}),
            s3_rule({}, noncurrentVersionExpiration={"noncurrentDays": 1}),
            ON_A_DATE.format(
                "earlier versions of objects",
                "1 days after newer ones replaced them",
                "before: 365 days after newer ones replaced them",
            ),
        ),
        (
            LIFECYCLE,
            s3_rule({}, noncurrentVersionExpiration={"noncurrentDays": 30}),
            s3_rule({}, noncurrentVersionExpiration={"noncurrentDays": 30, "newerNoncurrentVersions": 3}),
            None,
        ),
        (LIFECYCLE, s3_rule(TAGGED, expiration={"days": 1}), s3_rule(TAGGED, expiration={"days": 1}), None),
        (
            LIFECYCLE,
            s3_rule(TAGGED, expiration={"days": 1}),
            s3_rule({}, expiration={"days": 1}),
            ON_A_DATE.format("objects", "1 days after they were written", "before: 1 days after they were written"),
        ),
        (
            LIFECYCLE,
            {"rules": []},
            s3_rule({}, expiration={"days": UNKNOWN}),
            ON_A_DATE.format("objects", "an unknown number of days after they were written", "never before"),
        ),
        (S3_BUCKET, {}, {"lifecycleRules": [{"enabled": True, "expiration": {"days": 1}}]}, FIRST),
        (S3_BUCKET, {}, {"lifecycleRules": [{"enabled": False, "expiration": {"days": 1}}]}, None),
        (
            S3_BUCKET,
            {"versioning": {"enabled": True}},
            {"versioning": {"enabled": False}},
            NO_VERSIONS.format("versioning.enabled"),
        ),
        (S3_BUCKET, {}, {"versioning": {"enabled": False}}, None),  # it had no versions
        (
            GBUCKET,
            {},
            delete_if(createdBefore="2026-12-01"),
            ON_A_DATE.format("objects", "if they were written before 2026-12-01", "never before"),
        ),
        (GBUCKET, delete_if(createdBefore="2026-12-01"), delete_if(createdBefore="2026-11-01"), None),
        (
            GBUCKET,
            {},
            delete_if(daysSinceCustomTime=1),
            ON_A_DATE.format("objects", "1 days after their custom time", "never before"),
        ),
        (GBUCKET, {}, delete_if(withState="LIVE"), ON_A_DATE.format("objects", "at once", "never before")),
        (
            GBUCKET,
            {},
            delete_if(numNewerVersions=2),
            ON_A_DATE.format("earlier versions of objects", "if there are 2 newer ones", "never before"),
        ),
        (GBUCKET, delete_if(age=1), delete_if(age=1, matchesSuffixes=[".pt"]), None),
        (
            GBUCKET,
            delete_if(age=365, createdBefore="2026-12-01"),
            # The provider leaves out an age of 0.
            delete_if(age=0, createdBefore="2026-12-01"),
            ON_A_DATE.format(
                "objects",
                "if they were written before 2026-12-01",
                "before: 365 days after they were written, if they were written before 2026-12-01",
            ),
        ),
        (
            GBUCKET,
            {},
            {"softDeletePolicy": {"retentionDurationSeconds": 0}},
            f"{SOFT_DELETE}: what is deleted can be restored for 0 seconds, instead of 604800.",
        ),
        (GBUCKET, {"softDeletePolicy": {"retentionDurationSeconds": 0}}, {}, None),
        (
            GBUCKET,
            {"versioning": {"enabled": True}},
            {"versioning": {"enabled": False}},
            NO_VERSIONS.format("versioning.enabled"),
        ),
    ],
)
def test_a_bucket_that_deletes_more_or_sooner_is_a_harm(
    kind: str, old: dict[str, Any], new: dict[str, Any], text: str | None, step_line: Callable[..., str], kinds: Any
) -> None:
    log = read([step_line(type=kind, old=old, new=new, detailedDiff={"any": UP}), END])
    report = judge(log, environment="dev", stack="dev", kinds=kinds)
    assert [(effect.text, effect.harm) for effect in report.effects] == ([(text, True)] if text else [])


CUT_OFF = "instances that use it reach the store no longer, and their jobs write no checkpoint"
POWERLESS = "instances and jobs that use it may do nothing any more, and write no checkpoint"
IN_USE = "instances that use it keep it from being deleted: the update fails when the rest is changed already"


@pytest.mark.parametrize(
    ("kind", "op", "effect"),
    [
        ("aws:ec2/vpc:Vpc", "replace", CUT_OFF),
        ("aws:ec2/subnet:Subnet", "replace", CUT_OFF),
        ("aws:ec2/subnet:Subnet", "delete", CUT_OFF),
        ("aws:ec2/subnet:Subnet", "update", None),
        ("aws:ec2/securityGroup:SecurityGroup", "replace", CUT_OFF),
        ("aws:ec2/securityGroup:SecurityGroup", "delete", None),  # of a scraper that is no longer declared
        ("gcp:compute/subnetwork:Subnetwork", "replace", IN_USE),
        ("gcp:compute/network:Network", "delete", IN_USE),
        ("aws:iam/instanceProfile:InstanceProfile", "replace", POWERLESS),
        ("aws:iam/role:Role", "delete", POWERLESS),
        ("gcp:projects/iAMCustomRole:IAMCustomRole", "delete", POWERLESS),
        (
            "pulumi:providers:kubernetes",
            "replace",
            "its objects are deleted, with the pods in their namespace and their jobs",
        ),
        (
            "kubernetes:core/v1:ServiceAccount",
            "delete",
            "pods that use it get no credentials any more, and write no checkpoint",
        ),
    ],
)
def test_what_instances_need_and_lose_is_a_harm_to_jobs_that_run(kind: str, op: str, effect: str | None) -> None:
    state = ResourceState(inputs={}, outputs={}, id="x", protected=False, retained=False, custom=True)
    new = None if op == "delete" else state
    step = LoggedStep(f"urn:pulumi:prod::everspot::{kind}::part", kind, (op,), state, new, {"any": op})
    topic = LoggedStep(
        "urn:pulumi:prod::everspot::aws:sns/topic:Topic::t", "aws:sns/topic:Topic", ("create",), None, state
    )
    verb = "deleted" if op == "delete" else "replaced"
    for running, end, harm in (
        (None, ".", True),
        (RunningJobs({Market.SPOT: 2}), "; 2 jobs may be on them now.", True),
        (RunningJobs({}), "; no job runs now.", False),
    ):
        job_effects = [
            (e.text, e.harm) for e in effects((step, topic), resource_kinds(), running) if e.resource == "part"
        ]
        assert job_effects == ([(f"{verb}: {effect}{end}", harm)] if effect is not None else [])
    if op == "delete":
        assert effects((step,), resource_kinds()) == (), "of a whole environment, the fleets say it"
        stays = LoggedStep("urn:pulumi:prod::everspot::aws:sns/topic:Topic::t", topic.type, ("same",), state, state)
        assert len(effects((step, stays), resource_kinds())) == (effect is not None)
