"""Each alarm of a cluster goes off for its condition, with a real scheduler's figures and the local CloudWatch."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from elastic_helpers import TYPE, ZONE, ElasticCluster
from everspot_clouds.aws.alarms import ALARMS, CLUSTER, metric_name
from everspot_clouds.aws.cloud import AwsCloud
from everspot_core.cluster.manifest import Monitoring
from everspot_core.costs.ledger import EndRecord, LaunchRecord
from everspot_core.costs.team_budgets import Budgets
from everspot_core.jobs.records import Market
from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.cloudwatch.alarms import evaluate
from everspot_local.cloud import LocalCloud
from everspot_local.options import Options
from everspot_store import ManualClock
from moto.cloudwatch.models import cloudwatch_backends
from scheduler_helpers import folder_store

REGION, NAMESPACE = "us-east-1", "Everspot"
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


class Watched(ElasticCluster):
    """A cluster whose scheduler puts its figures into CloudWatch, with the alarms on them. Everything else of the cloud
    is played; time moves only by `minutes`."""

    def __init__(self, root: Path, local: LocalCloud) -> None:
        clock = ManualClock(datetime.now(UTC) - timedelta(days=7))  # CloudWatch takes no figures of the future
        super().__init__(folder_store(root, clock), clock)
        self.length = 100_000
        self.declare(monitoring=Monitoring(namespace=NAMESPACE))
        self.aws = AwsCloud.open(self.manifest, clock)
        self.cloud.publish_gauges = self.aws.publish_gauges  # type: ignore[method-assign]
        self.clients = {name: boto3.client(name, region_name=REGION) for name in ("cloudwatch", "sns", "sqs")}
        self.backend = cloudwatch_backends[ACCOUNT][REGION]
        self.inbox = self._alarms()
        self.schedulers = [self.scheduler()]

    def _alarms(self) -> str:
        """The alarms as the component declares them; what they send arrives in a queue."""
        topic = self.clients["sns"].create_topic(Name="alarms")["TopicArn"]
        url = self.clients["sqs"].create_queue(QueueName="inbox")["QueueUrl"]
        names = ["QueueArn"]
        arn = self.clients["sqs"].get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]["QueueArn"]
        self.clients["sns"].subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
        for alarm in ALARMS:
            self.clients["cloudwatch"].put_metric_alarm(
                AlarmName=alarm.about.name, AlarmDescription=alarm.about.sentence, Namespace=NAMESPACE,
                MetricName=metric_name(alarm.about.gauge), Dimensions=[{"Name": CLUSTER, "Value": "test"}],
                Statistic=alarm.statistic, ComparisonOperator=alarm.comparison, Threshold=alarm.threshold,
                Period=int(alarm.period.total_seconds()), EvaluationPeriods=alarm.periods,
                TreatMissingData=alarm.missing, AlarmActions=[topic],
            )  # fmt: skip
        return str(url)

    def minutes(self, count: int, *, works: bool = True) -> None:
        """Let minutes pass. In each, the scheduler runs or not, and CloudWatch evaluates its alarms."""
        for _ in range(count):
            if works:
                self.run(1)
                self.schedulers[0].publish.watch.ticked(timedelta(seconds=0.1))  # as the loop does behind each tick
                keeper = self.schedulers[0].publish.watch._watchers[-1]
                if keeper._putting is not None:
                    keeper._putting.result()
            for agent in self.agents.values():
                agent.turn()
            self.clock.advance(MINUTE - timedelta(seconds=works))
            evaluate(self.backend, self.clock.now())

    def ringing(self) -> set[str]:
        alarms = self.clients["cloudwatch"].describe_alarms(StateValue="ALARM")["MetricAlarms"]
        return {alarm["AlarmName"] for alarm in alarms}

    def delivered_alarms(self) -> list[str]:
        """Return the alarms whose messages were delivered, one entry per message."""
        deliveries = (
            self.clients["sqs"].receive_message(QueueUrl=self.inbox, MaxNumberOfMessages=10).get("Messages", [])
        )
        messages = [json.loads(json.loads(message["Body"])["Message"]) for message in deliveries]
        return [message["AlarmName"] for message in messages if message["NewStateValue"] == "ALARM"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    with LocalCloud(Options(state_dir=tmp_path / "local", boot_command=None, region=REGION)) as local:
        local.market.timeline.clear()  # alarms are looked at by the test's own clock
        for name, value in (
            ("AWS_ENDPOINT_URL", local.endpoint), ("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"),
        ):  # fmt: skip
            monkeypatch.setenv(name, value)
        watched = Watched(tmp_path, local)
        local.market.timeline.clear()
        watched.submit("j", expected_duration="10h", tags={"Team": "ants"})
        watched.minutes(8)
        assert watched.ringing() == set()
        assert set(watched.delivered_alarms()) <= {"scheduler-silent"}  # until the first scheduler had booted
        yield watched
        watched.aws.close()
        for client in watched.clients.values():
            client.close()


def rings(here: Watched, name: str) -> bool:
    """Return whether only this alarm goes off, with one message."""
    here.minutes(12)
    return here.ringing() == {name} and here.delivered_alarms() == [name]


def test_a_job_that_runs_far_too_long(here: Watched) -> None:
    job = here.store.jobs.get("j").value
    spec = job.spec.model_copy(update={"expected_duration": timedelta(minutes=5)})
    here.store.jobs.put("j", job.model_copy(update={"spec": spec}))
    assert rings(here, "job-over-estimate")


def test_a_pool_that_takes_far_more_than_it_used_to(here: Watched) -> None:
    now = here.clock.now()
    pool: dict[str, Any] = {"instance_type": TYPE, "zone": ZONE, "market": Market.SPOT}
    for n in range(3):
        name = f"i-taken-{n}"
        here.store.launches.create(name, LaunchRecord(instance_id=name, launched_at=now - 100 * HOUR, **pool))
        here.store.ends.create(name, EndRecord(instance_id=name, ended_at=now, interrupted=True))
    here.schedulers = [here.scheduler("s2")]  # which reads the ledger
    assert rings(here, "pool-over-norm")


def test_a_budget_of_which_four_fifths_are_spent(here: Watched) -> None:
    here.store.change_budgets(lambda before: monthly_cap(1000))
    here.minutes(4)
    backend: Any = here.backend
    used = [datum.value for datum in backend.metric_data if datum.name == "BudgetUsed"][-1]
    here.store.change_budgets(lambda before: monthly_cap(1000 * used / 0.5))
    here.minutes(3)
    assert here.ringing() == set()
    here.store.change_budgets(lambda before: monthly_cap(1000 * used / 0.85))
    here.minutes(6)
    assert here.ringing() == {"budget-at-80"}
    assert here.delivered_alarms() == ["budget-at-80"]


def monthly_cap(dollars: float) -> Budgets:
    """The ants' budget. The bees may spend nothing, which is no reason for an alarm until they do."""
    bees = {"month": {"dollars": 0}}
    return Budgets.model_validate({"teams": {"ants": {"month": {"dollars": dollars}}, "bees": bees}})


def test_a_scheduler_that_works_no_more(here: Watched) -> None:
    here.minutes(4, works=False)
    assert here.ringing() == set()
    here.minutes(3, works=False)
    assert here.ringing() == {"scheduler-silent"}
    assert here.delivered_alarms() == ["scheduler-silent"]
    here.minutes(8)
    assert here.ringing() == set()


def test_a_cluster_that_has_no_monitoring_puts_nothing(here: Watched) -> None:
    here.declare(monitoring=None)
    here.minutes(8)
    before = len(here.backend.metric_data)
    here.minutes(4)
    assert len(here.backend.metric_data) == before


def test_a_cloud_that_takes_no_figures_stops_nothing(here: Watched, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("not today")

    here.cloud.publish_gauges = refuse  # type: ignore[method-assign]
    here.minutes(3)
    assert here.state("j") == "RUNNING"
    assert "the cloud did not take the figures of the cluster (transient): not today" in caplog.text
