"""Stands in for CloudWatch's evaluation of alarms: once a minute of market time, and a message to SNS at each change.

moto keeps alarms and figures, and looks at neither. Here an alarm looks at its last whole periods, as many as it
evaluates, and treats what is missing there as it is told to (Amazon CloudWatch User Guide, "Using Amazon CloudWatch
alarms", "Configuring how CloudWatch alarms treat missing data"). CloudWatch looks a little farther back where figures
are missing; this does not. It knows alarms on one metric with a plain statistic, and no composite ones.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.cloudwatch.models import Alarm, CloudWatchBackend, MetricDatum, are_dimensions_same, cloudwatch_backends
from moto.sns.models import sns_backends

from everspot_local.aws import account
from everspot_local.aws.account import ACCOUNT
from everspot_local.market.clock import stamp

EVERY = timedelta(minutes=1)
KEPT = timedelta(hours=3)
"""Figures older than this are forgotten: no alarm of ours looks so far back."""
_STATISTICS: dict[str, Callable[[list[float]], float]] = {
    "Maximum": max,
    "Minimum": min,
    "Sum": sum,
    "SampleCount": len,
    "Average": lambda values: sum(values) / len(values),
}
_BREACHES: dict[str, Callable[[float, float], bool]] = {
    "GreaterThanThreshold": lambda value, threshold: value > threshold,
    "GreaterThanOrEqualToThreshold": lambda value, threshold: value >= threshold,
    "LessThanThreshold": lambda value, threshold: value < threshold,
    "LessThanOrEqualToThreshold": lambda value, threshold: value <= threshold,
}
_put_metric_alarm = CloudWatchBackend.put_metric_alarm


def put_metric_alarm(self: CloudWatchBackend, *words: Any, **more: Any) -> Alarm:
    """Store an alarm as moto does, with the state that CloudWatch gives a new one, and begin evaluating alarms."""
    idle, existing_names = not self.alarms, set(self.alarms)
    alarm = _put_metric_alarm(self, *words, **more)
    if alarm.name not in existing_names:
        alarm.state_value = "INSUFFICIENT_DATA"
    if idle:
        account.current().market.timeline.after(EVERY, _look)
    return alarm


def _look() -> None:
    here = account.current()
    backend = cloudwatch_backends[ACCOUNT][here.region]
    if not backend.alarms:
        return
    here.market.timeline.after(EVERY, _look)
    evaluate(backend, here.market.clock.now())


def evaluate(backend: CloudWatchBackend, now: datetime) -> None:
    """Evaluate every alarm as of a moment."""
    backend.metric_data = [datum for datum in list(backend.metric_data) if now - _at(datum) < KEPT]
    for alarm in list(backend.alarms.values()):
        _evaluate(alarm, [d for d in backend.metric_data if isinstance(d, MetricDatum) and _belongs_to(d, alarm)], now)


def _evaluate(alarm: Alarm, data: list[MetricDatum], now: datetime) -> None:
    points = [_point(alarm, data, now, back) for back in range(int(alarm.evaluation_periods))]
    breaches = _BREACHES[alarm.comparison_operator]
    missing, reported_points = alarm.treat_missing_data or "missing", [point for point in points if point is not None]
    if not reported_points and missing == "missing":
        state = "INSUFFICIENT_DATA"
    elif not reported_points and missing == "ignore":
        return
    else:
        required_breaches = int(alarm.datapoints_to_alarm or alarm.evaluation_periods)
        bad = sum(breaches(point, float(alarm.threshold)) for point in reported_points)
        bad += (len(points) - len(reported_points)) * (missing == "breaching")
        state = "ALARM" if bad >= required_breaches else "OK"
    if state != alarm.state_value:
        _change(alarm, state, f"{len(reported_points)} of {len(points)} datapoints, newest first: {points}", now)


def _point(alarm: Alarm, data: list[MetricDatum], now: datetime, back: int) -> float | None:
    """Return the statistic of the whole period that ended `back` periods ago; None if there are no data points."""
    period = int(alarm.period)
    end = int(now.timestamp()) // period * period - back * period
    values = [float(datum.value) for datum in data if end - period <= _at(datum).timestamp() < end]
    return _STATISTICS[alarm.statistic](values) if values else None


def _belongs_to(datum: MetricDatum, alarm: Alarm) -> bool:
    same_metric = (datum.namespace, datum.name) == (alarm.namespace, alarm.metric_name)
    return same_metric and are_dimensions_same(datum.dimensions, alarm.dimensions)


def _at(datum: Any) -> datetime:
    at: datetime = datum.timestamp
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _change(alarm: Alarm, state: str, reason: str, now: datetime) -> None:
    before = alarm.state_value
    alarm.update_state(reason, "{}", state)
    actions = {"ALARM": alarm.alarm_actions, "OK": alarm.ok_actions}.get(state, alarm.insufficient_data_actions) or []
    if not alarm.actions_enabled:
        return
    message = {
        "AlarmName": alarm.name,
        "AlarmDescription": alarm.description,
        "NewStateValue": state,
        "OldStateValue": before,
        "NewStateReason": reason,
        "StateChangeTime": stamp(now),
        "Region": alarm.region_name,
    }
    for action in actions:
        if action.startswith("arn:aws:sns:"):
            topic = sns_backends[ACCOUNT][alarm.region_name]
            topic.publish(message=json.dumps(message), arn=action, subject=f"{state}: {alarm.name}")
