"""A cluster without standing instances: the scheduler process, with its own permissions, launches and ends instances
for jobs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_elastic import PROGRAM, ElasticLive, probe
from everspot_core.jobs.records import EventKind, JobState

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ElasticLive]:
    with ElasticLive(tmp_path_factory.mktemp("elastic"), cpus=2) as cluster:
        yield cluster


def test_jobs_come_instances_follow_and_when_they_are_over_nothing_runs(live: ElasticLive, tmp_path: Path) -> None:
    assert live.agents() == {}
    jobs = [live.program(name, tmp_path) for name in ("one", "two")]
    live.until(lambda: all(live.ended(job) for job in jobs) or None)
    assert {live.ended(job) for job in jobs} == {JobState.SUCCEEDED}
    launched = live.agents()
    assert len(launched) == 2
    terminated = live.until(lambda: len(live.agents("terminated")) == 2 and live.agents())
    assert {i["StateReason"]["Code"] for i in terminated.values()} == {"Client.UserInitiatedShutdown"}
    assert {i["InstanceLifecycle"] for i in terminated.values()} == {"spot"}
    assert {i["Placement"]["AvailabilityZone"] for i in terminated.values()} <= set(live.places)
    (intent,) = (document.value for document in live.store.launching.scan().values())
    assert sorted(intent.jobs) == sorted(jobs)
    assert {i.instance_id for i in intent.outcome.instances} == set(launched)
    live.until(lambda: set(launched) <= set(live.store.ends.scan()) or None)
    assert not any(end.value.interrupted for end in live.store.ends.scan().values())
    assert len([e for job in jobs for e in live.list_events(job, EventKind.LOST, EventKind.INTERRUPTED)]) == 0
    calls = live.calls()
    assert {c["checked"][0]["action"] for c in calls if c["checked"]} >= {"ec2:CreateFleet", "ec2:TerminateInstances"}
    assert [call for call in calls if not call["allowed"]] == []


def test_a_job_that_loses_its_instance_has_another_one_launched(live: ElasticLive, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(PROGRAM)
    job = live.program("taken", tmp_path)
    first = live.until(lambda: owner(live, job))
    live.cloud.do("interrupt", instance=first)
    second = live.until(lambda: (current := owner(live, job)) != first and current)
    assert live.until(lambda: live.ended(job)) is JobState.SUCCEEDED
    assert {first, second} <= set(live.agents())
    live.until(lambda: not live.agents("pending", "running") or None)


def test_small_jobs_that_may_share_are_served_by_one_launch(live: ElasticLive, tmp_path: Path) -> None:
    before = set(live.agents())
    small = {"vcpus": 1, "memory_gib": 0.5, "shared": True}
    jobs = [live.program(name, tmp_path, resources=small) for name in ("left", "right")]
    assert {live.until(lambda job=job: live.ended(job)) for job in jobs} == {JobState.SUCCEEDED}
    (launched,) = set(live.agents()) - before
    assignments = [live.list_events(job, EventKind.ASSIGNED) for job in jobs]
    assert [(e.instance_id, e.data["share"]) for (e,) in assignments] == [(launched, 0.5)] * 2
    live.until(lambda: not live.agents("pending", "running") or None)


def owner(live: ElasticLive, job: str) -> str | None:
    record = live.store.records.get(job)
    return record.value.owner if record is not None and record.value.state is JobState.RUNNING else None


def test_a_probe_proves_each_market_on_an_instance_of_its_own(live: ElasticLive) -> None:
    live.until(lambda: not live.agents("pending", "running") or None)
    before = set(live.agents())
    code, checks = probe()
    assert list(checks) == [f"{market}: {part}" for market in ("spot", "on-demand") for part in PARTS]
    assert (code, {verdict for verdict, _, _ in checks.values()}) == (0, {"ok"})
    launched = {name: i for name, i in live.agents().items() if name not in before}
    assert sorted(i.get("InstanceLifecycle", "on-demand") for i in launched.values()) == ["on-demand", "spot"]
    assert "torch 2" in checks["spot: store"][1]
    live.until(lambda: not live.agents("pending", "running") or None)


PARTS = ("launch", "agent", "lease", "store")


def test_a_probe_names_the_call_that_the_schedulers_role_lacks(live: ElasticLive) -> None:
    denial = {"Effect": "Deny", "Action": "ec2:RunInstances", "Resource": "*"}
    live.allow("e2e-scheduler", "denial", {"Version": "2012-10-17", "Statement": [denial]})
    code, checks = probe()
    assert code == 1
    assert list(checks) == ["spot: launch", "on-demand: launch"]
    for verdict, detail, _ in checks.values():
        assert (verdict, "UnauthorizedOperation" in detail, "ec2:RunInstances" in detail) == ("fail", True, True)
    live.client("iam").delete_role_policy(RoleName="e2e-scheduler", PolicyName="denial")
