"""Monitoring under mocks: the resources that it adds, the alarms' metrics, and their recipients."""

import json
from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from everspot import AwsMonitoring, AwsTrainingCluster
from everspot_clouds.aws.alarms import ALARMS
from everspot_core.cluster.gauges import Gauge
from everspot_core.cluster.manifest import Manifest

Declare = Callable[..., tuple[Any, dict[str, Any]]]
TOPIC = "arn:aws:sns:eu-west-1:123456789012:alarms"
TAGS = {"Project": "p", "Team": "t", "Environment": "e"}
ALARM_NAMES = {"job-over-estimate", "pool-over-norm", "budget-at-80", "scheduler-silent"}


@pytest.fixture
def cluster(declare: Declare, spec: Any) -> Callable[..., Any]:
    """Return the resources that a cluster registers. Keywords change its settings."""

    def build(**changes: Any) -> Any:
        return declare(lambda: {"urn": AwsTrainingCluster("train", {**spec, **changes}).control_url})[0]

    return build


def test_it_is_off_unless_asked_for_and_adds_nothing_else(cluster: Callable[..., Any]) -> None:
    before, after = cluster().types_by_name(), cluster(monitoring={}).types_by_name()
    added = {name: after[name] for name in after.keys() - before.keys()}
    assert added.pop("train-network-endpoint-monitoring") == "aws:ec2/vpcEndpoint:VpcEndpoint"
    assert added == {
        "train-monitoring": "everspot:index:AwsMonitoring",
        "train-monitoring-dashboard": "aws:cloudwatch/dashboard:Dashboard",
        "train-monitoring-permissions": "aws:iam/rolePolicy:RolePolicy",
        **{f"train-monitoring-{name}": "aws:cloudwatch/metricAlarm:MetricAlarm" for name in ALARM_NAMES},
    }
    assert before.keys() <= after.keys()


def test_cluster_json_alone_tells_the_scheduler(cluster: Callable[..., Any]) -> None:
    recorder = cluster(monitoring={})
    published = Manifest.read(recorder.inputs("train-manifest")["content"])
    assert published.monitoring is not None
    assert published.monitoring.namespace == "Everspot"
    without = Manifest.read(cluster().inputs("train-manifest")["content"])
    assert without.monitoring is None
    assert without.generation == published.generation  # no machine is replaced for it


def test_the_alarms_are_those_that_are_tested_to_go_off(cluster: Callable[..., Any]) -> None:
    recorder = cluster(monitoring={"topic_arn": TOPIC})
    assert {alarm.about.name for alarm in ALARMS} == ALARM_NAMES
    for alarm in ALARMS:
        inputs = recorder.inputs(f"train-monitoring-{alarm.about.name}")
        assert (inputs["namespace"], inputs["dimensions"]) == ("Everspot", {"Cluster": "train"})
        assert (inputs["threshold"], inputs["comparisonOperator"]) == (alarm.threshold, alarm.comparison)
        assert (inputs["statistic"], inputs["treatMissingData"]) == (alarm.statistic, alarm.missing)
        assert (inputs["period"], inputs["evaluationPeriods"]) == (alarm.period.total_seconds(), alarm.periods)
        assert inputs["alarmActions"] == inputs["okActions"] == [TOPIC]
        assert inputs["tags"]["Project"]
    assert recorder.inputs("train-monitoring-scheduler-silent")["metricName"] == "Ticks"


def test_the_scheduler_may_put_metrics_of_this_namespace_and_no_other(cluster: Callable[..., Any]) -> None:
    policy = json.loads(cluster(monitoring={}).inputs("train-monitoring-permissions")["policy"])
    (statement,) = policy["Statement"]
    assert statement["Action"] == ["cloudwatch:PutMetricData"]
    assert statement["Condition"] == {"StringEquals": {"cloudwatch:namespace": "Everspot"}}


def test_the_dashboard_shows_every_figure_that_is_kept_and_all_alarms(cluster: Callable[..., Any]) -> None:
    board = cluster(monitoring={}).inputs("train-monitoring-dashboard")
    widgets = json.loads(board["dashboardBody"])["widgets"]
    shown = [metric for w in widgets for metric in w["properties"].get("metrics", [])]
    assert {name for _, name, *_ in shown} == {
        "JobsWaiting", "JobsRunning", "JobsOverEstimate", "Instances", "UsdPerHour", "PoolsOverNorm", "BudgetUsed",
        "Ticks",
    }  # fmt: skip
    assert len(shown) == len(Gauge)
    assert {tuple(dimensions) for *_, dimensions in [(m[0], m[2:]) for m in shown]} == {("Cluster", "train")}
    (alarms,) = [w["properties"]["alarms"] for w in widgets if w["type"] == "alarm"]
    assert len(alarms) == len(ALARMS)
    assert board["dashboardName"] == "train"


def test_it_stands_alone_and_refuses_what_is_no_topic(declare: Declare) -> None:
    def build(topic: str) -> Any:
        role = "arn:aws:iam::1:role/r"
        args = {"cluster": "train", "tags": TAGS, "scheduler_role_arn": role, "alarms": {"topic_arn": topic}}
        return declare(lambda: {"name": AwsMonitoring("m", args).dashboard_name})

    assert build(TOPIC)[0].inputs("m-permissions")["role"] == "r"
    with pytest.raises(pulumi.InputPropertiesError, match=r"topicArn"):
        build("everybody")


def test_a_cluster_s_wrong_topic_is_told_by_its_setting(cluster: Callable[..., Any]) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match=r"monitoring\.topicArn"):
        cluster(monitoring={"topic_arn": "everybody"})
