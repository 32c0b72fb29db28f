"""Clusters of local clouds with the scheduler in this process: instances without processes, and agents that tests
control."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
from elastic_helpers import spot_role
from everspot_clouds.aws.cloud import AwsCloud
from everspot_clouds.gcp.cloud import GcpCloud
from everspot_clouds.gcp.instances import of_cluster
from everspot_clouds.gcp.rules import LOG_FILTER
from everspot_core.jobs.records import JobState, Market
from everspot_local.cloud import LocalCloud
from everspot_local.gcp.environment import owner
from everspot_local.options import Options
from everspot_scheduler.loop import Scheduler
from everspot_store import Store, SystemClock
from google_helpers import GoogleSite
from google_site import SPOT
from scheduler_helpers import Agent, Cluster

PROJECT = "projects/everspot-local"
SCALE = 60.0  # a notice of 120 s lasts 2 s


class Here(ABC):
    """A cluster in a local cloud: buckets, and a queue with messages about its instances.

    `kind`, `zone`: of its instances. `environment`: the variables that lead its programs to the cloud.
    """

    kind: str
    zone: str
    cloud: AwsCloud | GcpCloud
    local: LocalCloud

    def __init__(self, root: Path) -> None:
        self.log = root / "market.jsonl"

    @property
    @abstractmethod
    def environment(self) -> dict[str, str]: ...

    @abstractmethod
    def open(self, **update: object) -> AwsCloud | GcpCloud:
        """The cloud as a scheduler has it whose manifest differs so."""

    @abstractmethod
    def launch(self, market: Market, cluster: str = "test") -> str:
        """The id of an instance that runs."""

    @abstractmethod
    def terminate(self, names: Iterable[str]) -> None:
        """End instances, as a person does."""

    @abstractmethod
    def queued_messages(self) -> int:
        """Return the number of messages that are not deleted from the queue, received or not."""

    def start(self, urls: tuple[str, str], **update: object) -> None:
        """Begin with a store and a scheduler."""
        clock = SystemClock(SCALE, self.local.market.clock.epoch.timestamp())
        self.cluster = Cluster(Store.open(*urls, clock=clock), clock)
        self.cluster.manifest = self.cluster.manifest.model_copy(update=update)
        self.cloud = self.open()
        self.scheduler = Scheduler(self.cluster.store, self.cluster.manifest, self.cloud, "s1")

    def deafen(self) -> AwsCloud | GcpCloud:
        """Go on with a scheduler that has no queue."""
        deaf = self.open(queue_url=None)
        self.scheduler = Scheduler(self.cluster.store, self.cluster.manifest, deaf, "deaf")
        return deaf

    def agent(self, market: Market) -> str:
        iid = self.launch(market)
        agent = Agent(self.cluster, iid, market, self.zone, kind=self.kind)
        agent.turn()
        self.cluster.agents[iid] = agent
        return iid

    def until(self, done: Callable[[], bool], limit: timedelta = timedelta(seconds=30)) -> None:
        """Run all actors until the condition is true."""
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
        record = self.cluster.store.records.get(name)
        return record.value if record is not None else None

    def owner(self, name: str) -> str | None:
        record = self.record(name)
        return record.owner if record is not None and record.state is JobState.RUNNING else None

    def logged(self, kind: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if line["event"] == kind]


class AwsHere(Here):
    """On AWS: its queue is behind EventBridge's rules."""

    kind, zone = "c6i.large", "us-east-1a"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.local = LocalCloud(Options(state_dir=root, scale=SCALE, boot_command=None))
        self._clients: list[Any] = []

    @property
    def environment(self) -> dict[str, str]:
        keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
        return {"AWS_ENDPOINT_URL": self.local.endpoint, "AWS_REGION": "us-east-1", **keys}

    def begin(self) -> None:
        self.ec2, s3 = self.client("ec2"), self.client("s3")
        spot_role()
        for name in ("control", "data"):
            s3.create_bucket(Bucket=name)
        self.start(("s3://control", "s3://data"), cluster="test", cloud="aws", queue_url=self._queue())

    def open(self, **update: object) -> AwsCloud:
        manifest = self.cluster.manifest.model_copy(update=update)
        return AwsCloud.open(manifest, self.cluster.clock, long_poll=timedelta(seconds=1))

    def terminate(self, names: Iterable[str]) -> None:
        self.ec2.terminate_instances(InstanceIds=list(names))

    def queued_messages(self) -> int:
        names = [f"ApproximateNumberOfMessages{state}" for state in ("", "NotVisible", "Delayed")]
        url = self.cluster.manifest.queue_url
        counts = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(counts[name]) for name in names)

    def client(self, name: str) -> Any:
        client = boto3.client(name, region_name="us-east-1")
        self._clients.append(client)
        return client

    def end(self) -> None:
        self.cloud.close()
        for client in self._clients:
            client.close()

    def _queue(self) -> str:
        self.sqs = sqs = self.client("sqs")
        events = self.client("events")
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
            InstanceType=self.kind,
            MinCount=1,
            MaxCount=1,
            Placement={"AvailabilityZone": self.zone},
            TagSpecifications=tags,
            **spot,
        )["Instances"]
        return str(instance["InstanceId"])


class GoogleHere(Here):
    """On Google Cloud: its subscription is behind a logging sink."""

    kind, zone = "n2-standard-8", "europe-west4-a"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.local = LocalCloud(Options(state_dir=root, cloud="gcp", scale=SCALE, boot_command=None))
        self.count = 0

    @property
    def environment(self) -> dict[str, str]:
        return owner(self.local.endpoint, "europe-west4")

    def begin(self) -> None:
        self.site = GoogleSite(self.local)
        self.site.build()
        for name in ("here-control", "here-data"):
            self.site.api.call("POST", "storage", "b", body={"name": name}, query={"project": "everspot-local"})
        self.start(
            ("gs://here-control", "gs://here-data"), cluster="test", cloud="gcp", region="europe-west4",
            account="everspot-local", queue_url=self._queue(), notice=timedelta(seconds=120),
        )  # fmt: skip

    def end(self) -> None:
        self.cloud.close()

    def queued_messages(self) -> int:
        provider: Any = self.local.provider
        subscription = provider.products._state.pubsub.subscription(str(self.cluster.manifest.queue_url))
        return len(subscription.backlog.deliveries)

    def open(self, **update: object) -> GcpCloud:
        return GcpCloud.open(self.cluster.manifest.model_copy(update=update), self.cluster.clock)

    def _queue(self) -> str:
        topic, subscription = (f"projects/everspot-local/{kind}/test" for kind in ("topics", "subscriptions"))
        call = self.site.api.call
        call("PUT", "pubsub", topic, body={})
        call("PUT", "pubsub", subscription, body={"topic": topic, "ackDeadlineSeconds": 10})
        sink = {"name": "test", "destination": f"pubsub.googleapis.com/{topic}", "filter": LOG_FILTER}
        writer = self.site.logging("sinks?uniqueWriterIdentity=true", sink)["writerIdentity"]
        bindings = [{"role": "roles/pubsub.publisher", "members": [writer]}]
        call("POST", "pubsub", f"{topic}:setIamPolicy", body={"policy": {"bindings": bindings}})
        return subscription

    def launch(self, market: Market, cluster: str = "test") -> str:
        self.count += 1
        more = {"scheduling": SPOT} if market is Market.SPOT else {}
        labels = {"everspot-cluster": cluster}
        return self.site.run(f"vm-{self.count}", self.zone, machineType=self.kind, labels=labels, **more)

    def terminate(self, names: Iterable[str]) -> None:
        places = {str(raw["id"]): raw["name"] for raw in of_cluster(self.site.api, "europe-west4", "test", "")}
        for name in names:
            self.site.api.call("DELETE", "compute", f"{PROJECT}/zones/{self.zone}/instances/{places[name]}")
