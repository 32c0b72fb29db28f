"""Auto Scaling groups through boto3: they heal, refresh, and wait for capacity."""

from typing import Any

import pytest
from botocore.exceptions import ClientError


def group_of_one(group: Any, template: str, **more: Any) -> None:
    group.create_auto_scaling_group(
        AutoScalingGroupName="one",
        MinSize=1,
        MaxSize=1,
        LaunchTemplate={"LaunchTemplateId": template, "Version": "1"},
        AvailabilityZones=["us-east-1a"],
        **more,
    )


def test_a_group_of_one_heals_itself(kit: Any, helpers: Any) -> None:
    group = kit.client("autoscaling")
    template = kit.template(
        InstanceType="t3.small",
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "everspot:role", "Value": "scheduler"}]}],
    )
    kit.ec2.create_launch_template_version(
        LaunchTemplateId=template, LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "m6i.large"}
    )
    group_of_one(group, template, Tags=[{"Key": "team", "Value": "ml", "PropagateAtLaunch": True}])
    earlier_ids = []
    for fail in (
        lambda i: kit.ec2.terminate_instances(InstanceIds=[i]),
        lambda i: kit.do("interrupt", instance=i, notice=False),
        lambda i: group.terminate_instance_in_auto_scaling_group(InstanceId=i, ShouldDecrementDesiredCapacity=False),
    ):
        (instance,) = helpers.until(
            lambda: [i for i in kit.instances("pending", "running") if i["InstanceId"] not in earlier_ids]
        )
        assert instance["InstanceType"] == "t3.small"
        tags = {t["Key"]: t["Value"] for t in instance["Tags"]}
        assert (tags["everspot:role"], tags["team"]) == ("scheduler", "ml")
        earlier_ids.append(instance["InstanceId"])
        fail(instance["InstanceId"])
    kit.living(1)
    group.delete_auto_scaling_group(AutoScalingGroupName="one", ForceDelete=True)
    kit.living(0)


def test_a_refresh_brings_a_new_instance_before_it_ends_the_old_one(kit: Any, helpers: Any) -> None:
    group = kit.client("autoscaling")
    template = kit.template(InstanceType="t3.small")
    group_of_one(group, template)
    (old,) = kit.living(1)
    kit.reaches(old["InstanceId"], "running")
    preferences = {"MinHealthyPercentage": 100, "MaxHealthyPercentage": 200, "InstanceWarmup": 30, "SkipMatching": True}

    def refresh() -> dict[str, Any]:
        group.start_instance_refresh(AutoScalingGroupName="one", Preferences=preferences)
        done = helpers.until(lambda: [r for r in refreshes() if r["Status"] not in ("Pending", "InProgress")])
        return dict(done[0])

    def refreshes() -> list[dict[str, Any]]:
        return list(group.describe_instance_refreshes(AutoScalingGroupName="one")["InstanceRefreshes"])

    assert refresh()["Status"] == "Successful"  # nothing to replace: all instances match
    assert [i["InstanceId"] for i in kit.living(1)] == [old["InstanceId"]]
    kit.ec2.create_launch_template_version(
        LaunchTemplateId=template, LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "m6i.large"}
    )
    group.update_auto_scaling_group(
        AutoScalingGroupName="one", LaunchTemplate={"LaunchTemplateId": template, "Version": "2"}
    )
    with kit.still():
        group.start_instance_refresh(AutoScalingGroupName="one", Preferences=preferences)
        with pytest.raises(ClientError) as again:
            group.start_instance_refresh(AutoScalingGroupName="one", Preferences=preferences)
        assert again.value.response["Error"]["Code"] == "InstanceRefreshInProgress"
    kit.living(2)
    (new,) = kit.living(1)
    assert (new["InstanceType"], new["InstanceId"] != old["InstanceId"]) == ("m6i.large", True)
    (member,) = group.describe_auto_scaling_groups()["AutoScalingGroups"][0]["Instances"]
    assert member["InstanceId"] == new["InstanceId"]
    assert [r["PercentageComplete"] for r in refreshes()] == [100, 100]
    # Without a warm-up of its own a refresh takes the group's grace period.
    preferences = {"SkipMatching": True}
    assert refresh()["Status"] == "Successful"


@pytest.mark.parametrize(
    "preferences", [{"MaxHealthyPercentage": 200}, {"MinHealthyPercentage": 50, "MaxHealthyPercentage": 200}]
)
def test_a_refresh_refuses_bounds_that_aws_refuses(kit: Any, preferences: dict[str, int]) -> None:
    group = kit.client("autoscaling")
    group.create_auto_scaling_group(
        AutoScalingGroupName="one",
        MinSize=0,
        MaxSize=1,
        LaunchTemplate={"LaunchTemplateId": kit.template(), "Version": "1"},
        AvailabilityZones=["us-east-1a"],
    )
    with pytest.raises(ClientError) as refused:
        group.start_instance_refresh(AutoScalingGroupName="one", Preferences=preferences)
    assert refused.value.response["Error"]["Code"] == "ValidationError"


def test_a_group_waits_for_capacity(kit: Any, helpers: Any) -> None:
    with kit.still():
        kit.do("drought", pool="t3.small/us-east-1a", market="on-demand", **{"for": "60s"})
        kit.client("autoscaling").create_auto_scaling_group(
            AutoScalingGroupName="one",
            MinSize=1,
            MaxSize=1,
            LaunchTemplate={"LaunchTemplateId": kit.template(InstanceType="t3.small"), "Version": "1"},
            AvailabilityZones=["us-east-1a"],
        )
        assert kit.instances() == []
    kit.living(1)
