"""The rules about a whole stack."""

from fractions import Fraction

import pytest
from everspot_policy.rule import Subject
from everspot_policy.stack import STACK_RULES, Bounds

from_fleet = "aws:ec2/fleet:Fleet"


def violations(rule: str, bounds: Bounds, *subjects: Subject) -> list[tuple[str, str]]:
    return [(urn, problem.reason) for urn, problem in STACK_RULES[rule].check(subjects, bounds)]


@pytest.mark.parametrize(("budget", "high"), [(None, 5.0), (5.0, None), (None, None), (5.0, 5.0), (5.0, 0.0)])
def test_what_is_within_the_budget_or_not_known_is_no_problem(budget: float | None, high: float | None) -> None:
    assert violations("cost-within-budget", Bounds("dev", budget, high)) == []


def test_a_month_beyond_the_budget_is_told_in_dollars() -> None:
    expected = [("", "may cost up to $1,234.50 a month; its budget is $1,000.00")]
    assert violations("cost-within-budget", Bounds("dev", 1000, 1234.5)) == expected


def bucket(team: object, name: str) -> Subject:
    return Subject("aws:s3/bucket:Bucket", {"tags": {"Team": team}}, urn=name)


def labelled(team: object, name: str) -> Subject:
    return Subject("gcp:storage/bucket:Bucket", {"labels": {"team": team}}, urn=name)


def test_a_second_team_and_an_unknown_one_are_reported() -> None:
    stack = (bucket("a", "1"), labelled("a", "2"), bucket("b", "3"), bucket({}, "4"), Subject("x", {}))
    assert violations("one-team", Bounds("dev"), *stack) == [("3", "is b, and most of the stack is a's")]
    assert violations("one-team", Bounds("dev", teams=("b", "c")), *stack) == [
        ("1", "a is no known team; there are b, c"),
        ("2", "a is no known team; there are b, c"),
    ]
    assert violations("one-team", Bounds("dev", teams=("a",)), *stack[:2]) == []
    assert violations("one-team", Bounds("dev")) == []


def test_a_templates_instances_belong_to_the_team_too() -> None:
    specified = [{"resourceType": "instance", "tags": {"Team": "b"}}]
    inputs = {"tags": {"Team": "a"}, "tagSpecifications": specified}
    template = Subject("aws:ec2/launchTemplate:LaunchTemplate", inputs, urn="2")
    assert violations("one-team", Bounds("dev"), bucket("a", "1"), template) == [
        ("2", "is b, and most of the stack is a's")
    ]


def test_nodes_of_kubernetes_belong_to_the_team_too() -> None:
    node = Subject("kubernetes:karpenter.k8s.aws/v1:EC2NodeClass", {"spec": {"tags": {"Team": "b"}}}, urn="2")
    other = Subject("kubernetes:core/v1:ConfigMap", {"spec": {"tags": {"Team": "c"}}}, urn="3")
    assert violations("one-team", Bounds("dev"), bucket("a", "1"), bucket("a", "4"), node, other) == [
        ("2", "is b, and most of the stack is a's")
    ]


def fleet(market: str, units: object) -> Subject:
    return Subject(
        from_fleet, {"targetCapacitySpecification": {"defaultTargetCapacityType": market, "totalTargetCapacity": units}}
    )


def test_development_stands_on_spot_over_all_its_fleets() -> None:
    dev, message = Bounds("aws-dev"), "2 of 3 units are on-demand; in a development environment at most 50% may be"
    assert violations("on-demand-share", dev, fleet("on-demand", 2), fleet("spot", 1)) == [("", message)]
    assert violations("on-demand-share", dev, fleet("on-demand", 2), fleet("spot", 2)) == []
    assert violations("on-demand-share", dev, fleet("on-demand", 1)) == []
    assert violations("on-demand-share", Bounds("aws-prod"), fleet("on-demand", 2)) == []
    assert violations("on-demand-share", Bounds("dev", on_demand_share=Fraction(1)), fleet("on-demand", 2)) == []
    assert violations("on-demand-share", dev, fleet("on-demand", 0), fleet("spot", "?")) == []


def test_of_one_fleet_its_parts_count() -> None:
    capacity = {"defaultTargetCapacityType": "spot", "totalTargetCapacity": 4, "onDemandTargetCapacity": 3}
    (problem,) = violations(
        "on-demand-share", Bounds("dev"), Subject(from_fleet, {"targetCapacitySpecification": capacity})
    )
    assert problem[1].startswith("3 of 4 units")
    spread = {"onDemandBaseCapacity": 1, "onDemandPercentageAboveBaseCapacity": 50}
    group = {"desiredCapacity": 5, "minSize": 0, "mixedInstancesPolicy": {"instancesDistribution": spread}}
    (problem,) = violations("on-demand-share", Bounds("dev"), Subject("aws:autoscaling/group:Group", group))
    assert problem[1].startswith("3 of 5 units")


def test_a_google_groups_market_is_its_templates() -> None:
    kind = "gcp:compute/regionInstanceTemplate:RegionInstanceTemplate"
    templates = (
        Subject(kind, {"scheduling": {"provisioningModel": "SPOT"}}, urn="spot"),
        Subject(kind, {"scheduling": {"provisioningModel": "STANDARD"}}, urn="standard"),
    )
    chosen = {"instanceFlexibilityPolicy": {"instanceSelections": [{"machineTypes": ["a"]}]}}
    group = "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager"
    groups = (
        Subject(group, {**chosen, "targetSize": 1}, depends=("spot",)),
        Subject(group, {**chosen, "targetSize": 3}, depends=("health", "standard")),
        Subject(group, {"targetSize": 9}, depends=("standard",)),
        Subject(group, {**chosen, "targetSize": 9}, depends=("elsewhere",)),
    )
    (problem,) = violations("on-demand-share", Bounds("dev"), *templates, *groups)
    assert problem[1].startswith("3 of 4 units")


def test_a_bucket_without_a_policy_is_found_and_one_with_is_not() -> None:
    kind, policy = "aws:s3/bucket:Bucket", "aws:s3/bucketPolicy:BucketPolicy"
    buckets = (
        Subject(kind, {}, urn="alone"),
        Subject(kind, {}, urn="referred"),
        Subject(kind, {"bucket": "by-name"}, urn="named"),
        Subject(kind, {"policy": "{}"}, urn="of-old"),
        Subject("gcp:storage/bucket:Bucket", {}, urn="google"),
    )
    policies = (Subject(policy, {}, depends=("referred",)), Subject(policy, {"bucket": "by-name"}))
    assert [urn for urn, _ in violations("aws-bucket-has-policy", Bounds("dev"), *buckets, *policies)] == ["alone"]
