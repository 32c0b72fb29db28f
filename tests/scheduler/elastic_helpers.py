"""A cluster whose scheduler launches instances: a cloud with pools that tests fill, and agents that boot on its
instances."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import boto3
from everspot_clouds.aws.cloud import AwsCloud
from everspot_clouds.base import CloudInstance, LaunchAnswer, Launched, Phase
from everspot_core.capacity.launching import LaunchError, LaunchIntent, LaunchTrouble
from everspot_core.cluster.manifest import Elastic
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import Market, Role
from everspot_core.schedule import PoolKey
from everspot_local.cloud import LocalCloud
from everspot_scheduler.loop import Scheduler
from everspot_store import ManualClock
from scheduler_helpers import Agent, Cluster, FakeCloud

TYPE, ZONE = "c6i.large", "us-east-1a"
SPOT, ON_DEMAND = (PoolKey(TYPE, ZONE, market) for market in (Market.SPOT, Market.ON_DEMAND))
CODES = {
    LaunchTrouble.CAPACITY: "InsufficientInstanceCapacity",
    LaunchTrouble.QUOTA: "VcpuLimitExceeded",
    LaunchTrouble.REQUEST: "InvalidParameterValue",
}


def elastic(**update: object) -> Elastic:
    fields = {
        "types": [TYPE],
        "markets": [Market.SPOT, Market.ON_DEMAND],
        "max_instances": 8,
        "template": "lt-1",
        "template_version": "1",
        "places": {ZONE: "subnet-a"},
    }
    return Elastic.model_validate(fields | update)


class PoolsCloud(FakeCloud):
    """Launches, once for each token, what its pools have; `refuses` says why a pool gives nothing."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.capacity: dict[PoolKey, int] = {}
        self.refuses: dict[PoolKey, LaunchTrouble] = {}
        self.intents: list[LaunchIntent] = []
        self.answers: dict[str, LaunchAnswer] = {}
        self.lost: Exception | None = None  # raised instead of the answer, after everything is done
        self.terminated: list[list[str]] = []
        self.stubborn = False  # terminations are accepted and forgotten
        self.hidden: set[str] = set()  # not described yet

    def instances(self) -> list[CloudInstance]:
        return [i for i in super().instances() if i.instance_id not in self.hidden]

    def launch(self, intent: LaunchIntent) -> LaunchAnswer:
        self.intents.append(intent)
        if intent.token not in self.answers:
            self.answers[intent.token] = self._launch(intent)
        if self.lost is not None:
            raise self.lost
        return self.answers[intent.token]

    def _launch(self, intent: LaunchIntent) -> LaunchAnswer:
        errors, brought = [], []
        for pool in intent.pools:
            key = PoolKey(pool.instance_type, pool.zone, pool.market)
            want = intent.count - len(brought)
            kind = self.refuses.get(key, LaunchTrouble.CAPACITY)
            launched = 0 if key in self.refuses else min(want, self.capacity.get(key, want))
            if launched < want and (intent.whole or key in self.refuses or key in self.capacity):
                errors.append(
                    LaunchError(
                        instance_type=key.instance_type, zone=key.zone, market=key.market, kind=kind,
                        code=CODES.get(kind, "Other"), message="as the test wills",
                    )
                )  # fmt: skip
            brought += [self._begin(key, intent) for _ in range(0 if intent.whole and launched < want else launched)]
        return LaunchAnswer(instances=tuple(brought), errors=tuple(errors))

    def _begin(self, key: PoolKey, intent: LaunchIntent) -> Launched:
        name = f"e-{len(self.described) + 1:03d}"
        if key in self.capacity:
            self.capacity[key] -= 1
        self.described[name] = CloudInstance(
            instance_id=name,
            instance_type=key.instance_type,
            zone=key.zone,
            market=key.market,
            role=Role.AGENT,
            launched_at=self.cluster.clock.now().replace(microsecond=0),
            launch=intent.token,
        )
        return Launched(instance_id=name, instance_type=key.instance_type, zone=key.zone)

    def terminate(self, instances: Iterable[str]) -> None:
        names = list(instances)
        self.terminated.append(names)
        for name in names if not self.stubborn else []:
            self.end_one(name)

    def end_one(self, name: str, *, interrupted: bool = False) -> None:
        was = self.described[name]
        self.described[name] = replace(
            was, phase=Phase.ENDED, ended_at=self.cluster.clock.now(), interrupted=interrupted
        )
        if name in self.cluster.agents:
            self.cluster.agents[name].alive = False

    @property
    def alive(self) -> set[str]:
        return {name for name, i in self.described.items() if i.phase is Phase.ALIVE}


class Killed(BaseException):
    """The process is killed here."""


class Killer:
    """Counts calls, before and after each, and kills at one of them."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.calls = at, list[str]()

    def around(self, owner: object, kind: str, *names: str) -> None:
        """Count these methods of an object from now on."""
        for name in names:
            setattr(owner, name, self.counted(getattr(owner, name), f"{kind}.{name}"))

    def counted(self, method: Callable[..., object], label: str) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            self._count(f"before {label}")
            answer = method(*args, **more)
            self._count(f"after {label}")
            return answer

        return call

    def _count(self, label: str) -> None:
        self.calls.append(label)
        if len(self.calls) == self.at:
            raise Killed(label)


class Through:
    """A wrapper of a cloud whose methods can be replaced without changing the cloud."""

    def __init__(self, cloud: object) -> None:
        self._cloud = cloud

    def __getattr__(self, name: str) -> object:
        return getattr(self._cloud, name)


class ElasticCluster(Cluster):
    """A cluster with nothing standing."""

    cloud: PoolsCloud
    kind, zone = TYPE, ZONE

    def __init__(self, store, clock, **update) -> None:
        super().__init__(store, clock)
        self.cloud = PoolsCloud(self)
        self.declare(elastic=elastic(**update))
        self.schedulers = [self.scheduler()]
        self.boots = True

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            super().run(1)
            if self.boots:
                self.boot()

    def submit(self, name: str, **spec: object) -> JobSubmission:
        settings = JobSpec.model_validate({"name": name, "recipe": "image_classification", **spec})
        now = self.clock.now()
        by = now + settings.deadline if settings.deadline is not None else None
        return self.store.submit(JobSubmission(job_id=name, spec=settings, submitted_at=now, deadline_at=by))

    def end(self, iid: str, **_: object) -> None:
        """Let an agent follow its order to leave. Its machine does not power off, so only the scheduler ends it."""
        self.agents[iid].alive = False

    def living(self) -> dict[str, Market]:
        """The instances that run, by the cloud's own word, and how they are paid."""
        return {name: self.cloud.described[name].market for name in self.cloud.alive}

    def successor(self, name: str) -> Scheduler:
        """The scheduler of the process that comes after one that was killed."""
        return self.scheduler(name)

    def launched(self) -> set[str]:
        """Every instance that a scheduler ever launched, also what has ended."""
        return {i.instance_id for i in self.cloud.instances() if i.launch}

    def boot(self) -> None:
        """Start agents on running instances without one, and remove the agents of ended instances."""
        living = self.living()
        for name, market in sorted(living.items()):
            if name not in self.agents:
                self.agents[name] = Agent(self, name, market, self.zone, kind=self.kind)
        for name in set(self.agents) - set(living):
            self.agents[name].alive = False

    def intents(self) -> list[LaunchIntent]:
        return [document.value for _, document in sorted(self.store.launching.scan().items())]

    def check(self) -> None:
        """Every job holds one lease at most, and every living instance with a token is in exactly one intent."""
        super().check()
        instance_ids = [i.instance_id for intent in self.intents() if intent.outcome for i in intent.outcome.instances]
        assert len(instance_ids) == len(set(instance_ids)), instance_ids

    def later(self, **time: float) -> None:
        self.clock.advance(timedelta(**time))


def words(here: ElasticCluster, job: str) -> str:
    """Why a job waits, as the scheduler has written it."""
    return here.store.notes.waiting.read().jobs[job].words


def count_launches(here: ElasticCluster, market: Market = Market.SPOT) -> int:
    """Return the number of requested launches of a market."""
    return sum(1 for i in here.cloud.intents if i.market is market)


def spot_role() -> None:
    """Make the service-linked role without which EC2 launches no Spot instances, unless the account has it."""
    iam = boto3.client("iam", region_name="us-east-1")
    with suppress(iam.exceptions.InvalidInputException):
        iam.create_service_linked_role(AWSServiceName="spot.amazonaws.com")
    iam.close()


class LocalAccount:
    """A local cloud with a launch template: `where` names it, and a subnet."""

    def __init__(self, cloud: LocalCloud) -> None:
        self.cloud, self.ec2 = cloud, boto3.client("ec2", region_name="us-east-1")
        spot_role()
        data = {"ImageId": "ami-12c6146b", "InstanceType": "m6i.large"}
        answer = self.ec2.create_launch_template(LaunchTemplateName="elastic", LaunchTemplateData=data)
        zones = [{"Name": "availability-zone", "Values": [ZONE]}]
        (subnet,) = self.ec2.describe_subnets(Filters=zones)["Subnets"]
        self.template, self.subnet = answer["LaunchTemplate"]["LaunchTemplateId"], subnet["SubnetId"]

    @property
    def where(self) -> dict[str, Any]:
        return {"template": self.template, "subnet": self.subnet}


class LocalElastic(ElasticCluster):
    """A cluster whose cloud is boto3 against the local cloud. Market time is the test's own."""

    def __init__(self, store: Any, clock: ManualClock, name: str, template: str, subnet: str) -> None:
        super().__init__(store, clock)
        where = {"template": template, "places": {"us-east-1a": subnet}}
        self.declare(cluster=name, elastic=elastic(**where))
        self.cloud = AwsCloud.open(self.manifest, clock)  # type: ignore[assignment]
        self.schedulers = [self.scheduler()]

    def living(self) -> dict[str, Market]:
        return {i.instance_id: i.market for i in self.cloud.instances() if i.phase is Phase.ALIVE}
