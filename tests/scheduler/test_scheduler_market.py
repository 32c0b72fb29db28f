"""The scheduler against the local cloud: real EC2, SQS, EventBridge and S3 calls, and a market that takes instances."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from elastic_helpers import spot_role
from everspot_clouds.aws.cloud import AwsCloud
from everspot_core.records import JobState, Market, Order, Reason
from everspot_local.cloud import LocalCloud
from everspot_local.options import Options
from everspot_scheduler.loop import Scheduler
from everspot_scheduler.settling import settle_ledger
from everspot_store import Store, SystemClock
from scheduler_helpers import Agent, Cluster

SCALE = 60.0  # a notice of 120 s lasts 2 s
ZONE, TYPE = "us-east-1a", "c6i.large"


class Here:
    """A cluster in the local cloud: buckets, a queue behind EventBridge's rules, instances without processes."""

    def __init__(self, root: Path) -> None:
        self.local = LocalCloud(Options(state_dir=root, scale=SCALE, boot_command=None))
        self.log = root / "market.jsonl"
        self._clients: list[Any] = []

    def begin(self) -> None:
        clock = SystemClock(SCALE, self.local.market.clock.epoch.timestamp())
        self.ec2, s3 = self.client("ec2"), self.client("s3")
        spot_role()
        for name in ("control", "data"):
            s3.create_bucket(Bucket=name)
        self.cluster = Cluster(Store.open("s3://control", "s3://data", clock=clock), clock)
        update = {"cluster": "test", "cloud": "aws", "queue_url": self._queue()}
        self.cluster.manifest = self.cluster.manifest.model_copy(update=update)
        self.cloud = AwsCloud.open(self.cluster.manifest, clock, long_poll=timedelta(seconds=1))
        self.scheduler = Scheduler(self.cluster.store, self.cluster.manifest, self.cloud, "s1")

    def client(self, name: str) -> Any:
        client = boto3.client(name, region_name="us-east-1")
        self._clients.append(client)
        return client

    def end(self) -> None:
        self.cloud.close()
        for client in self._clients:
            client.close()

    def _queue(self) -> str:
        sqs, events = self.client("sqs"), self.client("events")
        url = sqs.create_queue(QueueName="interruptions", Attributes={"VisibilityTimeout": "2"})["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        allow = {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [{**allow, "Resource": arn}]})
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
        events.put_rule(Name="ec2", EventPattern=json.dumps({"source": ["aws.ec2"]}), State="ENABLED")
        events.put_targets(Rule="ec2", Targets=[{"Id": "queue", "Arn": arn}])
        return str(url)

    def launch(self, market: Market, cluster: str = "test") -> str:
        spot = {"InstanceMarketOptions": {"MarketType": "spot"}} if market is Market.SPOT else {}
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "everspot:cluster", "Value": cluster}]}]
        (instance,) = self.ec2.run_instances(
            ImageId="ami-12c6146b",
            InstanceType=TYPE,
            MinCount=1,
            MaxCount=1,
            Placement={"AvailabilityZone": ZONE},
            TagSpecifications=tags,
            **spot,
        )["Instances"]
        return str(instance["InstanceId"])

    def agent(self, market: Market) -> str:
        iid = self.launch(market)
        agent = Agent(self.cluster, iid, market)
        agent.turn()
        self.cluster.agents[iid] = agent
        return iid

    def until(self, done: Callable[[], bool], limit: timedelta = timedelta(seconds=30)) -> None:
        """Let everybody work until it is so."""
        clock = self.cluster.clock
        end = clock.monotonic() + limit
        while not done():
            assert clock.monotonic() < end, "it did not come to pass in time"
            self.scheduler.tick()
            for agent in self.cluster.agents.values():
                agent.turn()
            self.cluster.check()
            clock.sleep(timedelta(milliseconds=100))

    def record(self, name: str) -> Any:
        found = self.cluster.store.records.get(name)
        return found.value if found is not None else None

    def owner(self, name: str) -> str | None:
        record = self.record(name)
        return record.owner if record is not None and record.state is JobState.RUNNING else None

    def logged(self, kind: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if line["event"] == kind]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    here = Here(tmp_path / "local")
    with here.local:
        monkeypatch.setenv("AWS_ENDPOINT_URL", here.local.endpoint)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        here.begin()
        yield here
        here.end()


def test_an_interruption_moves_the_job_and_the_ledger_agrees_with_the_markets_own_log(here: Here) -> None:
    here.cluster.length = 100_000
    first = here.agent(Market.SPOT)
    foreign = here.launch(Market.SPOT, cluster="somebody-else")
    here.cluster.submit("j")
    here.until(lambda: here.owner("j") == first)
    second = here.agent(Market.SPOT)

    here.local.do("interrupt", instance=foreign)
    here.local.do("interrupt", instance=first)
    taken_at = here.local.machines.find(first).reclaim_at
    assignments = here.cluster.store.assignments
    here.until(lambda: (found := assignments.get(first)) is not None and found.value.cordoned)
    told = assignments.get(first).value
    assert (told.order, told.reason, told.deadline) == (Order.STOP, Reason.NOTICE, taken_at)  # only the queue knows it
    here.until(lambda: here.owner("j") == second)
    assert here.record("j").last_reason is Reason.NOTICE
    assert assignments.get(foreign) is None
    base = here.agent(Market.ON_DEMAND)  # not before: the pool that has just taken an instance comes last

    here.until(lambda: here.cluster.store.ends.get(first) is not None)
    here.local.do("price", pool=f"{TYPE}/{ZONE}", factor=1.25)
    here.ec2.terminate_instances(InstanceIds=[second, base])
    for iid in (first, second, base):
        here.cluster.agents[iid].alive = False
    here.until(lambda: len(here.cluster.store.ends.scan()) == 3)
    assert here.record("j").last_reason is Reason.LOST
    settle_ledger(here.cluster.store, here.cluster.manifest, here.cloud)

    launches = {n: d.value for n, d in here.cluster.store.launches.scan().items()}
    ends = {n: d.value for n, d in here.cluster.store.ends.scan().items()}
    mine = {first, second, base}
    assert launches.keys() == ends.keys() == mine
    began = {e["id"]: e["at"] for e in here.logged("launch") if e["id"] in mine}
    ended = {e["id"]: (e["at"], e["interrupted"]) for e in here.logged("end") if e["id"] in mine}
    assert {n: launch.launched_at for n, launch in launches.items()} == moments(began)
    assert {n: (e.ended_at, e.interrupted) for n, e in ends.items()} == {
        n: (moment(at), taken) for n, (at, taken) in ended.items()
    }
    assert {n for n, e in ends.items() if e.interrupted} == {first}
    stated = {(p.at, p.usd_per_hour) for p in here.cluster.store.prices() if p.market is Market.SPOT}
    last = max(e.ended_at for e in ends.values())
    changes = {(moment(e["at"]), e["usd"]) for e in here.logged("price") if (e["type"], e["zone"]) == (TYPE, ZONE)}
    assert {c for c in changes if c[0] <= last} <= stated <= changes


def test_an_instance_that_is_taken_without_notice_loses_its_job_by_the_clouds_word(here: Here) -> None:
    here.cluster.length = 100_000
    first = here.agent(Market.SPOT)
    here.cluster.submit("j")
    here.until(lambda: here.owner("j") == first)
    second = here.agent(Market.ON_DEMAND)
    here.local.do("interrupt", instance=first, notice=False)
    here.cluster.agents[first].alive = False
    here.until(lambda: here.owner("j") == second, limit=timedelta(seconds=10))  # less than the lease of 15 s
    record = here.record("j")
    assert (record.preemptions, record.last_reason) == (1, Reason.LOST)


def test_the_description_alone_is_enough_when_the_queue_is_silent(here: Here) -> None:
    here.cluster.manifest = here.cluster.manifest.model_copy(update={"queue_url": None})
    deaf = AwsCloud.open(here.cluster.manifest, here.cluster.clock)
    here.scheduler = Scheduler(here.cluster.store, here.cluster.manifest, deaf, "deaf")
    here.cluster.length = 100_000
    first = here.agent(Market.SPOT)
    here.cluster.submit("j")
    here.until(lambda: here.owner("j") == first)
    here.ec2.terminate_instances(InstanceIds=[first])
    here.cluster.agents[first].alive = False
    second = here.agent(Market.SPOT)
    here.until(lambda: here.owner("j") == second, limit=timedelta(seconds=14))
    assert here.cluster.store.assignments.get(second).value.order is Order.RUN
    deaf.close()


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def moments(texts: dict[str, str]) -> dict[str, datetime]:
    return {name: moment(text) for name, text in texts.items()}
