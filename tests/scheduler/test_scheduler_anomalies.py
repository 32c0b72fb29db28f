"""Anomalies that a scheduler finds: each is written, sent once by any scheduler, and closed when it ends."""

import json
from dataclasses import replace
from datetime import date, timedelta

import boto3
from everspot_clouds.aws.cloud import AwsCloud
from everspot_core.cluster.manifest import DeclaredCapacity
from everspot_core.cluster.notify import Notifications
from everspot_core.costs.ledger import PricePoint
from everspot_core.governance.anomalies import DailySpending
from everspot_core.governance.thresholds import Thresholds
from everspot_core.jobs.records import Market
from everspot_scheduler.anomalies import LOOK_EVERY, SPENT_EVERY
from scheduler_helpers import Cluster
from test_scheduler_notify import TOPIC, settle

HOUR = timedelta(hours=1)


def kinds(cluster: Cluster) -> list[tuple[str, str]]:
    anomalies = cluster.store.notes.anomalies.read()
    return [(a.kind, a.subject) for a in anomalies.open] if anomalies is not None else []


def later(cluster: Cluster, span: timedelta = LOOK_EVERY) -> None:
    """The next look, after this time at least. Agents have beaten before it, as they do all the time."""
    cluster.clock.advance(max(span, LOOK_EVERY))
    for agent in cluster.agents.values():
        agent.turn()
    cluster.run(2)


def notified_anomalies(cluster: Cluster) -> list[str]:
    return [str(data["subject"]) for _, data in cluster.cloud.notified if data["occasion"] == "anomaly"]


def test_an_idle_fleet_is_told_once_whoever_schedules_and_is_over_when_it_works(cluster: Cluster):
    cluster.declare(notifications=Notifications(topic_arn=TOPIC))
    cluster.length = 10**6
    cluster.agent("i-1", Market.ON_DEMAND)
    cluster.run(2)
    assert cluster.store.notes.anomalies.read() is None, "nothing was found, so nothing was written"
    later(cluster, 3 * HOUR)
    assert kinds(cluster) == [("idle-fleet", "fleet")]
    settle(cluster, lambda: any(key.startswith("_anomaly/") for key in cluster.store.sent_notices.scan()))
    ((subject, data),) = cluster.cloud.notified
    assert subject == "idle-fleet: fleet (cluster test)"
    assert data["figures"] == {"idle": 1.0, "instances": 1.0, "usd_per_hour": 0.085}
    cluster.schedulers = [cluster.scheduler("s2")]
    later(cluster)
    assert kinds(cluster) == [("idle-fleet", "fleet")]
    cluster.submit("work")
    cluster.run(5)
    later(cluster)
    note = cluster.store.notes.anomalies.read()
    assert (kinds(cluster), [a.kind for a in note.over]) == ([], ["idle-fleet"])
    settle(cluster, lambda: not any(key.startswith("_anomaly/") for key in cluster.store.sent_notices.scan()))
    assert notified_anomalies(cluster) == ["fleet"]


def test_the_thresholds_of_the_cluster_count_as_soon_as_they_are_declared(cluster: Cluster):
    cluster.agent("i-1", Market.ON_DEMAND)
    cluster.run(2)
    later(cluster, HOUR)
    assert kinds(cluster) == []
    cluster.declare(anomalies=Thresholds(idle_for=HOUR / 2))
    cluster.run(8)  # the declaration is read again every few ticks
    later(cluster)
    assert kinds(cluster) == [("idle-fleet", "fleet")]
    cluster.declare(anomalies=None)
    cluster.run(8)
    later(cluster)
    assert kinds(cluster) == []


def test_a_job_over_its_estimate_is_found_by_its_time_with_instances(cluster: Cluster):
    cluster.length = 10**6
    cluster.agent("i-1", Market.ON_DEMAND)
    cluster.submit("slow", expected_duration="10m")
    cluster.submit("unknown")
    cluster.run(5)
    for _ in range(5):
        later(cluster)
        cluster.run(5)
    assert kinds(cluster) == [("job-over-estimate", "slow")]


def test_a_team_over_its_norm_is_found_by_the_days_that_an_earlier_scheduler_wrote(cluster: Cluster):
    """Ten days of a dollar, which are in the note alone; today an on-demand instance worked for a hundred hours."""
    cluster.clock.advance(timedelta(days=20))
    today = cluster.clock.now().date()
    before = {today - timedelta(days=n): {"vision": 1.0} for n in range(3, 13)}
    cluster.store.notes.spending.write(DailySpending(updated_at=cluster.clock.now(), days=before))
    cluster.length = 10**6
    for n in range(8):
        cluster.agent(f"i-{n}", Market.ON_DEMAND)
        cluster.submit(f"j-{n}", tags={"Team": "vision"})
    cluster.run(5)
    later(cluster, SPENT_EVERY + 12 * HOUR)
    later(cluster, SPENT_EVERY)
    spent = cluster.store.notes.spending.read().days
    assert spent[today]["vision"] > 8 * 12 * 0.085 * 0.99
    assert spent[today - timedelta(days=3)] == {"vision": 1.0}
    assert ("team-over-norm", "vision") in kinds(cluster)
    assert all(isinstance(day, date) for day in spent)


def test_a_pool_at_twice_its_month_is_found_where_it_is_in_use(cluster: Cluster):
    cluster.clock.advance(timedelta(days=20))
    now = cluster.clock.now()
    cluster.length = 10**6
    cluster.agent("i-1")
    pool = {"instance_type": "c6i.large", "zone": "us-east-1a", "market": Market.SPOT, "source": "test"}
    cluster.store.add_price(PricePoint(**pool, at=now - timedelta(days=9), usd_per_hour=0.03))
    cluster.store.add_price(PricePoint(**pool, at=now - HOUR, usd_per_hour=0.08))
    cluster.submit("work")
    cluster.run(5)
    later(cluster)
    assert kinds(cluster) == [("pool-price", "c6i.large in us-east-1a, spot")]


def test_a_note_that_cannot_be_read_is_written_anew_and_stops_no_tick(cluster: Cluster):
    cluster.store.control.put("ledger/anomalies.json", b"{")
    cluster.agent("i-1", Market.ON_DEMAND)
    cluster.run(2)
    later(cluster, 3 * HOUR)
    assert kinds(cluster) == [("idle-fleet", "fleet")]


def test_a_topic_of_the_local_cloud_gets_it_beside_the_note_in_the_bucket(s3_cluster: Cluster):
    cluster = s3_cluster
    sns, sqs = (boto3.client(name, region_name="us-east-1") for name in ("sns", "sqs"))
    topic = sns.create_topic(Name="anomalies")["TopicArn"]
    queue = sqs.create_queue(QueueName="anomalies")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    cluster.declare(notifications=Notifications(topic_arn=topic))
    cluster.cloud.notify = AwsCloud.open(cluster.manifest, cluster.clock).notify  # type: ignore[method-assign]
    cluster.agent("i-1", Market.ON_DEMAND)
    cluster.run(2)
    later(cluster, 3 * HOUR)
    settle(cluster, lambda: any(key.startswith("_anomaly/") for key in cluster.store.sent_notices.scan()))
    (sent,) = [json.loads(m["Body"]) for m in sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]]
    assert sent["Subject"] == "idle-fleet: fleet (cluster test)"
    assert sent["Message"].splitlines() == [
        "1 of 1 instances have had no work for 2h or longer: $0.09 an hour (cluster test)",
        "everspot cost anomalies",
    ]


def test_capacity_that_the_stack_does_not_declare_is_told_until_it_is_gone(cluster: Cluster):
    """An update was killed after the cloud had made a fleet; the next one has made another."""
    cluster.agent("i-1", Market.ON_DEMAND)
    declared = cluster.cloud.described["i-1"]
    cluster.cloud.described["i-1"] = replace(declared, part_of="fleet-1")
    stray = replace(declared, instance_id="i-9", part_of="fleet-9")
    cluster.cloud.described["i-9"] = stray
    cluster.cloud.described["i-8"] = replace(stray, instance_id="i-8", part_of="", launch="f" * 32)
    cluster.run(2)
    later(cluster, HOUR)
    assert kinds(cluster) == [], "which fleets are declared is not known"
    cluster.store.write_declared_capacity(DeclaredCapacity(capacity=["fleet-1"]))
    later(cluster)
    assert ("orphaned-capacity", "fleet-9") in kinds(cluster)
    (anomaly,) = [a for a in cluster.store.notes.anomalies.read().open if a.kind == "orphaned-capacity"]
    assert "fleet-9 belongs to no stack and runs 1 instance (agent) for $0.085 an hour" in anomaly.words
    assert anomaly.figures["usd_per_hour"] == 0.085
    del cluster.cloud.described["i-9"]
    cluster.run(8)
    later(cluster)
    assert "orphaned-capacity" not in [kind for kind, _ in kinds(cluster)]
