"""Nothing stands: the scheduler's own process launches what jobs need, with its own permissions, and ends it again."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from e2e_helpers import BUCKETS, CLUSTER, REGION, LiveCluster
from everspot.aws import launch_policy
from everspot.limits import with_idle_limit
from everspot_core.job import JobSpec, JobSubmission
from everspot_core.manifest import Elastic, Manifest
from everspot_core.records import EventKind, JobState, Market, Role

pytestmark = pytest.mark.timeout(600)

ZONES = ("a", "b")
TYPES = ("c6i.large", "m6i.large")
PROGRAM = "import time\nfor step in range(20):\n    time.sleep(0.2)\n    print(step, flush=True)\n"


class ElasticLive(LiveCluster):
    """One whose fleets hold nothing, and whose scheduler may launch."""

    def _fleet(self) -> None:
        """The launch template of elastic instances, the permissions to launch from it, and what is declared of it."""
        ec2 = self.client("ec2")
        template = self._template(Role.AGENT, TYPES[0])
        subnets = {s["AvailabilityZone"]: s["SubnetId"] for s in ec2.describe_subnets()["Subnets"]}
        self.places = {f"{REGION}{zone}": subnets[f"{REGION}{zone}"] for zone in ZONES}
        vpc = {s["VpcId"] for s in ec2.describe_subnets()["Subnets"]}.pop()
        groups = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"]
        account = self.client("sts").get_caller_identity()["Account"]
        policy = launch_policy.launch_policy(
            cluster=CLUSTER,
            template_arn=f"arn:aws:ec2:{REGION}:{account}:launch-template/{template}",
            image_id="ami-12c6146b",
            agent_role_arn=f"arn:aws:iam::{account}:role/e2e-agent",
            subnet_ids=list(self.places.values()),
            security_group_ids=[group["GroupId"] for group in groups],
        )
        self.allow("e2e-scheduler", "launch", policy)
        elastic = Elastic(
            types=list(TYPES), markets=list(Market), max_instances=4, idle_limit=timedelta(minutes=1),
            template=template, template_version="1", places=self.places,
        )  # fmt: skip
        declared = {"elastic": elastic, "shared_instances": True}
        manifest = self._manifest(Role.AGENT).model_copy(update=declared)
        self.client("s3").put_object(Bucket=BUCKETS[0], Key="cluster.json", Body=manifest.to_json())

    def _manifest(self, role: Role) -> Manifest:
        plain = super()._manifest(role)
        return Manifest.read(with_idle_limit(plain.to_json().decode(), "1m")) if role is Role.AGENT else plain

    def program(self, name: str, folder: Path, **more: Any) -> str:
        """A job whose program needs nothing but Python."""
        (folder / "main.py").write_text(PROGRAM)
        spec = JobSpec.model_validate({"name": name, "code": str(folder), "entrypoint": ["main.py"], **more})
        job = JobSubmission(job_id=f"{name}-1", spec=spec, submitted_at=self.clock.now())
        return self.store.submit(job, folder).job_id

    def agents(self, *states: str) -> dict[str, dict[str, Any]]:
        filters = [
            {"Name": "tag:everspot:cluster", "Values": [CLUSTER]},
            {"Name": "tag-key", "Values": ["everspot:launch"]},
        ]
        pages = self.client("ec2").get_paginator("describe_instances").paginate(Filters=filters)
        found = {i["InstanceId"]: i for page in pages for r in page["Reservations"] for i in r["Instances"]}
        return {name: i for name, i in found.items() if not states or i["State"]["Name"] in states}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ElasticLive]:
    with ElasticLive(tmp_path_factory.mktemp("elastic"), cpus=2) as made:
        yield made


def test_jobs_come_instances_follow_and_when_they_are_over_nothing_runs(live: ElasticLive, tmp_path: Path) -> None:
    assert live.agents() == {}
    jobs = [live.program(name, tmp_path) for name in ("one", "two")]
    live.until(lambda: all(live.ended(job) for job in jobs) or None)
    assert {live.ended(job) for job in jobs} == {JobState.SUCCEEDED}
    launched = live.agents()
    assert len(launched) == 2
    gone = live.until(lambda: len(live.agents("terminated")) == 2 and live.agents())
    assert {i["StateReason"]["Code"] for i in gone.values()} == {"Client.UserInitiatedShutdown"}
    assert {i["InstanceLifecycle"] for i in gone.values()} == {"spot"}
    assert {i["Placement"]["AvailabilityZone"] for i in gone.values()} <= set(live.places)
    (intent,) = (found.value for found in live.store.launching.scan().values())
    assert sorted(intent.jobs) == sorted(jobs)
    assert {i.instance_id for i in intent.outcome.instances} == set(launched)
    live.until(lambda: set(launched) <= set(live.store.ends.scan()) or None)
    assert not any(end.value.interrupted for end in live.store.ends.scan().values())
    assert len([e for job in jobs for e in live.events_of(job, EventKind.LOST, EventKind.INTERRUPTED)]) == 0
    calls = live.calls()
    assert {c["checked"][0]["action"] for c in calls if c["checked"]} >= {"ec2:CreateFleet", "ec2:TerminateInstances"}
    assert [call for call in calls if not call["allowed"]] == []


def test_a_job_that_loses_its_instance_has_another_one_launched(live: ElasticLive, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(PROGRAM)
    job = live.program("taken", tmp_path)
    first = live.until(lambda: owner(live, job))
    live.cloud.do("interrupt", instance=first)
    second = live.until(lambda: (found := owner(live, job)) != first and found)
    assert live.until(lambda: live.ended(job)) is JobState.SUCCEEDED
    assert {first, second} <= set(live.agents())
    live.until(lambda: not live.agents("pending", "running") or None)


def test_small_jobs_that_may_share_are_served_by_one_launch(live: ElasticLive, tmp_path: Path) -> None:
    before = set(live.agents())
    small = {"vcpus": 1, "memory_gib": 0.5, "shared": True}
    jobs = [live.program(name, tmp_path, resources=small) for name in ("left", "right")]
    assert {live.until(lambda job=job: live.ended(job)) for job in jobs} == {JobState.SUCCEEDED}
    (launched,) = set(live.agents()) - before
    given = [live.events_of(job, EventKind.ASSIGNED) for job in jobs]
    assert [(e.instance_id, e.data["share"]) for (e,) in given] == [(launched, 0.5)] * 2
    live.until(lambda: not live.agents("pending", "running") or None)


def owner(live: ElasticLive, job: str) -> str | None:
    record = live.store.records.get(job)
    return record.value.owner if record is not None and record.value.state is JobState.RUNNING else None
