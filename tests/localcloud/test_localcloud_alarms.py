"""CloudWatch alarms are evaluated, which moto does not do."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.cloudwatch.alarms import evaluate
from everspot_local.cloud import LocalCloud
from everspot_local.options import Options
from moto.cloudwatch.models import cloudwatch_backends

REGION = "us-east-1"
# CloudWatch takes figures of the past two weeks; what the market looks at by itself is later than this.
T0 = (datetime.now(UTC) - timedelta(days=1)).replace(minute=0, second=0, microsecond=0)


@pytest.fixture
def scale() -> float:
    """Market seconds in a real one. Here the market looks at nothing by itself."""
    return 1


@pytest.fixture
def cloudwatch(tmp_path: Path, scale: float) -> Iterator[Any]:
    """CloudWatch of the local cloud."""
    with LocalCloud(Options(state_dir=tmp_path, boot_command=None, region=REGION, scale=scale)) as local:
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "endpoint_url": local.endpoint}
        client = boto3.client("cloudwatch", region_name=REGION, **keys)
        yield client
        client.close()


def alarm(cloudwatch: Any, **changes: Any) -> None:
    settings = {
        "AlarmName": "a", "Namespace": "N", "MetricName": "M", "Dimensions": [{"Name": "D", "Value": "d"}],
        "Statistic": "Maximum", "ComparisonOperator": "GreaterThanThreshold", "Threshold": 5, "Period": 60,
        "EvaluationPeriods": 2,
    }  # fmt: skip
    cloudwatch.put_metric_alarm(**{**settings, **changes})


def put(cloudwatch: Any, minutes_ago: float, value: float, dimension: str = "d") -> None:
    at = T0 - timedelta(minutes=minutes_ago)
    data = {"MetricName": "M", "Value": value, "Timestamp": at, "Dimensions": [{"Name": "D", "Value": dimension}]}
    cloudwatch.put_metric_data(Namespace="N", MetricData=[data])


def state(cloudwatch: Any) -> str:
    evaluate(cloudwatch_backends[ACCOUNT][REGION], T0)
    return str(cloudwatch.describe_alarms()["MetricAlarms"][0]["StateValue"])


def test_it_goes_off_only_if_every_period_breaches(cloudwatch: Any) -> None:
    alarm(cloudwatch)
    put(cloudwatch, 0.5, 9)
    assert state(cloudwatch) == "OK"
    put(cloudwatch, 1.5, 6)
    put(cloudwatch, 1.6, 1)  # of one period the greatest counts
    assert state(cloudwatch) == "ALARM"
    put(cloudwatch, 1.5, 9, dimension="other")
    assert state(cloudwatch) == "ALARM"


@pytest.mark.parametrize(
    ("missing", "state_name"),
    [("breaching", "ALARM"), ("notBreaching", "OK"), ("missing", "INSUFFICIENT_DATA"), ("ignore", "INSUFFICIENT_DATA")],
)
def test_what_is_missing_is_treated_as_it_is_to_be(cloudwatch: Any, missing: str, state_name: str) -> None:
    alarm(cloudwatch, TreatMissingData=missing)
    assert state(cloudwatch) == state_name


def test_datapoints_to_alarm_are_enough(cloudwatch: Any) -> None:
    alarm(cloudwatch, EvaluationPeriods=3, DatapointsToAlarm=1)
    put(cloudwatch, 2.5, 6)
    assert state(cloudwatch) == "ALARM"


@pytest.mark.parametrize("scale", [600.0])  # a minute in a tenth of a second
def test_nobody_has_to_ask(cloudwatch: Any) -> None:
    alarm(cloudwatch, TreatMissingData="breaching", Period=60, EvaluationPeriods=1)
    waiter = cloudwatch.get_waiter("alarm_exists")
    waiter.wait(AlarmNames=["a"], StateValue="ALARM", WaiterConfig={"Delay": 1, "MaxAttempts": 60})


@pytest.fixture
def newer(cloudwatch: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client that speaks CloudWatch's newer protocol, as that of the provider does."""
    monkeypatch.setattr("botocore.model.PRIORITY_ORDERED_SUPPORTED_PROTOCOLS", ("smithy-rpc-v2-cbor",))
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "endpoint_url": cloudwatch.meta.endpoint_url}
    session = boto3.Session(region_name=REGION)
    client = session.client("cloudwatch", **keys)
    assert client.meta.service_model.resolved_protocol == "smithy-rpc-v2-cbor"
    yield client
    client.close()


def test_both_protocols_tell_of_the_same_alarms(cloudwatch: Any, newer: Any) -> None:
    alarm(newer, AlarmDescription="ümläut " * 40, TreatMissingData="breaching", Threshold=0.8)
    (old,), (new,) = (client.describe_alarms()["MetricAlarms"] for client in (cloudwatch, newer))
    assert {**new, "AlarmConfigurationUpdatedTimestamp": 0, "StateUpdatedTimestamp": 0} == {
        **old, "AlarmConfigurationUpdatedTimestamp": 0, "StateUpdatedTimestamp": 0,
    }  # fmt: skip
    gap = new["StateUpdatedTimestamp"] - old["StateUpdatedTimestamp"]
    assert abs(gap) < timedelta(seconds=1)
    assert (new["Threshold"], new["EvaluationPeriods"], new["AlarmDescription"]) == (0.8, 2, "ümläut " * 40)
    put(newer, 0.5, 9)
    put(newer, 1.5, 9)
    assert state(newer) == "ALARM"
    newer.delete_alarms(AlarmNames=["a"])
    assert cloudwatch.describe_alarms()["MetricAlarms"] == []


def test_the_newer_protocol_has_the_older_one_s_errors(newer: Any) -> None:
    newer.put_dashboard(DashboardName="d", DashboardBody='{"widgets": []}')
    assert newer.get_dashboard(DashboardName="d")["DashboardBody"] == '{"widgets": []}'
    with pytest.raises(ClientError) as refused:
        newer.get_dashboard(DashboardName="none")
    assert refused.value.response["Error"]["Code"] == "ResourceNotFound"
