"""A thousand simultaneous jobs on an empty cluster, through boto3 against the local cloud's EC2 with its token
buckets."""

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from elastic_helpers import ElasticCluster, elastic, spot_role
from everspot_clouds.aws.cloud import AwsCloud
from everspot_clouds.aws.rules import BILLING
from everspot_core.capacity.catalogue import builtin
from everspot_core.cluster.manifest import Limits
from everspot_core.costs.bill import Bill, bill
from everspot_core.costs.prices import total
from everspot_core.governance.usage import Sums, usage_rows
from everspot_core.jobs.records import JobState, Market
from everspot_local.aws.ec2 import throttle
from everspot_local.cloud import LocalCloud
from everspot_local.machines.machine import Machine
from everspot_local.market.delays import Delays
from everspot_local.options import Options
from everspot_simulator.drive import simulate
from everspot_simulator.supply import BEGIN
from everspot_simulator.workload_file import parse
from everspot_store import Bucket, ManualClock, Store
from everspot_store.testing import MemoryBackend
from scheduler_helpers import Agent

JOBS, CAP, DEPTH = 1000, 100, 20
TYPES = {"c6i.large": 0.031, "m6i.large": 0.035}
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
WORK = 1
"""Rounds of an agent."""
IDLE_LIMIT = timedelta(seconds=30)
LIMITS = Limits()
LATER = 1.2
"""Times the simulated minimum."""


class CrowdCluster(ElasticCluster):
    """A cluster on the cloud's market time. The cloud's own events up to a moment happen before any actor's next
    turn."""

    def __init__(self, local: LocalCloud) -> None:
        clock = ManualClock(local.market.clock.now())
        buckets = (Bucket(f"memory://{name}", MemoryBackend(), clock) for name in ("control", "data"))
        super().__init__(Store(*buckets, clock=clock), clock)
        self.local, self.length = local, WORK
        local.market.clock._exact = lambda: clock.now().timestamp()  # type: ignore[method-assign]
        for kind, usd in TYPES.items():
            local.do("price", pool=f"{kind}/*", usd=usd)
            local.do("depth", pool=f"{kind}/*", instances=DEPTH)
        ec2 = boto3.client("ec2", region_name="us-east-1")
        template = ec2.create_launch_template(
            LaunchTemplateName="elastic", LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "m6i.large"}
        )
        subnets = {s["AvailabilityZone"]: s["SubnetId"] for s in ec2.describe_subnets()["Subnets"]}
        ec2.close()
        spot_role()
        declared = elastic(
            types=list(TYPES), places={zone: subnets[zone] for zone in ZONES}, max_instances=CAP,
            idle_limit=IDLE_LIMIT, template=template["LaunchTemplate"]["LaunchTemplateId"],
        )  # fmt: skip
        self.declare(cluster=f"c-{uuid4().hex[:6]}", elastic=declared, limits=LIMITS)
        self.cloud = AwsCloud.open(self.manifest, clock)  # type: ignore[assignment]
        self.schedulers = [self.scheduler()]
        self.request_counts, self.throttled = Counter[str](), list[str]()
        self._count(local.account.buckets)

    def _count(self, buckets: throttle.Buckets) -> None:
        def counted(call: Any, name: Any) -> Any:
            def take(*arguments: Any) -> bool:
                admitted = bool(call(*arguments))
                self.request_counts[name(*arguments)] += 1
                self.throttled += [] if admitted else [name(*arguments)]
                return admitted

            return take

        buckets.admit = counted(buckets.admit, lambda action, _: action)  # type: ignore[method-assign]
        buckets.launch = counted(buckets.launch, lambda _: "instances of a launch")  # type: ignore[method-assign]

    @property
    def machines(self) -> list[Machine]:
        with self.local.market.lock:
            return list(self.local.machines.living())

    def living(self) -> dict[str, Market]:
        return {m.id: m.market for m in self.machines}

    def boot(self) -> None:
        now, delay = self.clock.now(), self.local.market.delays.boot
        for machine in self.machines:
            if machine.id not in self.agents and machine.launched_at + delay <= now:
                agent = Agent(self, machine.id, machine.market, machine.pool.zone)
                agent.record = agent.record.model_copy(update={"instance_type": machine.pool.instance_type})
                self.agents[machine.id] = agent

    def round(self) -> None:
        """A tick, agents' turns, and time until the next tick."""
        for scheduler in self.schedulers:
            scheduler.tick()
        living = self.living()
        for _ in range(LIMITS.tick_every // LIMITS.poll_every):
            for name, agent in self.agents.items():
                agent.alive = name in living
                agent.turn()
        self.check()
        self.pass_time(LIMITS.tick_every)

    def waiting(self) -> bool:
        return sum(record.value.state.final for record in self.store.records.scan().values()) < JOBS

    def bill(self, jobs: list[str]) -> Bill:
        store = self.store
        launches, ends = ([doc.value for doc in table.scan().values()] for table in (store.launches, store.ends))
        events = store.events_by_job(jobs)
        return bill(launches, ends, store.prices(), events, builtin(), self.clock.now(), rules=BILLING)

    def pass_time(self, span: timedelta) -> None:
        self.clock.advance(span)
        done = threading.Event()
        self.local.market.timeline.at(self.clock.now(), done.set)
        assert done.wait(60)
        self.boot()


@pytest.fixture
def crowd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CrowdCluster]:
    delays = Delays(remembered=timedelta(days=1))
    with LocalCloud(Options(state_dir=tmp_path, scale=1, boot_command=None, delays=delays)) as local:
        monkeypatch.setenv("AWS_ENDPOINT_URL", local.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        monkeypatch.setattr("everspot_clouds.aws.cloud._READ", timedelta(hours=1))  # a busy machine answers late
        crowd = CrowdCluster(local)
        yield crowd
        crowd.cloud.close()


def simulated_minimum(boot: timedelta) -> timedelta:
    """From the submission until as many instances are ready as may be launched, with nothing but the boot between."""
    pools = [
        {"instance_type": kind, "zone": zone, "market": "spot", "usd_per_hour": usd}
        for kind, usd in TYPES.items()
        for zone in ZONES
    ]
    jobs = [{"id": f"j{n:04d}", "arrival_hours": 0, "hours": 0.01} for n in range(JOBS)]
    terms = {"launch_hours": boot / timedelta(hours=1), "setup_hours": 0, "max_instances": CAP,
             "idle_limit_seconds": IDLE_LIMIT.total_seconds()}  # fmt: skip
    values = {"jobs": jobs, "fleet": {**terms, "pools": pools}, "horizon_hours": 2 * terms["launch_hours"]}
    run = simulate(parse(values, "crowd", builtin()), {})
    ready = sorted(m.ready_at for m in run.machines)
    return ready[CAP - 1] - BEGIN


def test_a_crowd_is_served_within_the_cap_and_the_buckets_and_the_bill_is_the_clouds_own_sum(crowd, audit_bill):
    crowd.round()
    crowd.pass_time(LIMITS.tick_every / 2)
    jobs = [f"j{n:04d}" for n in range(JOBS)]
    for n, job in enumerate(jobs):
        crowd.submit(job, **({"deadline": "8h", "expected_duration": "2m"} if n % 10 == 0 else {}))
    submitted_at, full_at = crowd.clock.now(), None
    crowd.pass_time(LIMITS.tick_every / 2)
    while crowd.waiting():
        crowd.round()
        assert len(crowd.machines) <= CAP
        if full_at is None and len(crowd.agents) == CAP:
            full_at = crowd.clock.now()
            crowd.local.do("price", pool="c6i.large/us-east-1a", usd=0.0427)
    assert {record.value.state for record in crowd.store.records.scan().values()} == {JobState.SUCCEEDED}
    assert full_at - submitted_at <= LATER * simulated_minimum(crowd.local.market.delays.boot)
    crowd.pass_time(IDLE_LIMIT)
    while crowd.machines:
        crowd.round()
    crowd.round()
    crowd.round()  # described every other tick

    # No request exceeded its token bucket, and launches and terminations are batched.
    assert crowd.throttled == []
    assert crowd.request_counts["CreateFleet"] <= 2 and crowd.request_counts["TerminateInstances"] <= 2
    assert crowd.request_counts["instances of a launch"] == CAP

    # Money: the ledger's bill, and what the cloud's own log of launches, ends and prices comes to.
    lines = audit_bill.read(crowd.local.market.log.path)
    market_costs = {row["id"]: row["cost"] for row in audit_bill.audit(lines, crowd.clock.now())}
    ledger_bill = crowd.bill(jobs)
    assert {i.launch.instance_id: i.cost for i in ledger_bill.instances} == market_costs
    assert len(market_costs) == CAP and sum(market_costs.values()) > 0
    assert sum(part.cost for part in ledger_bill.jobs) + total(u.cost for u in ledger_bill.idle) == sum(
        market_costs.values()
    )
    assert Sums.sum_rows(usage_rows(ledger_bill)).cost == sum(market_costs.values())
