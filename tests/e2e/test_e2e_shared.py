"""Four small jobs share one instance of a whole local cluster. After one notice, all resume elsewhere and lose
nothing."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from e2e_helpers import PLAIN, LiveCluster, everspot
from everspot_core.jobs.records import EventKind, JobState, Reason, Request

pytestmark = pytest.mark.timeout(900)

NAMES = ("a", "b", "c", "d")
STEPS = 1200
PART = {"vcpus": 1, "memory_gib": 0.25, "shared": True}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    folder = tmp_path_factory.mktemp("shared")
    with LiveCluster(folder, agent_env=PLAIN, cpus=4) as cluster:
        cluster.store.write_manifest(cluster.store.manifest().model_copy(update={"shared_instances": True}))
        yield cluster


def owners(live: LiveCluster, least: int) -> set[str] | None:
    instance_ids = {live.trains(name, steps=least) for name in NAMES}
    return {name for name in instance_ids if name} if None not in instance_ids else None


def test_four_jobs_share_an_instance_and_go_on_together_elsewhere(live: LiveCluster, tmp_path: Path) -> None:
    traces = {name: tmp_path / f"{name}.jsonl" for name in NAMES}
    for name in NAMES:
        live.submit_toy(name, STEPS, 0.6, traces[name], resources=PART)
    (first,) = live.until(lambda: owners(live, 1))
    instance = live.store.instances.get(first)
    assert instance is not None and {r.job_id for r in instance.value.residents} <= set(NAMES)
    live.cloud.do("interrupt", instance=first)
    for name in NAMES:
        live.until(lambda name=name: len(live.list_events(name, EventKind.TRAINING)) == 2)
        (interruption,) = live.list_events(name, EventKind.INTERRUPTED)
        again = live.list_events(name, EventKind.TRAINING)[1]
        assert again.data["from_step"] == interruption.data["step"] == interruption.data["durable_step"]
        assert interruption.data["reason"] == Reason.NOTICE and again.instance_id != first
    ends = [live.list_events(name, EventKind.INTERRUPTED)[0].at for name in NAMES]
    assert max(ends) - min(ends) < timedelta(minutes=2), "all within the notice"
    # One of them is cancelled on the way; the others end as if nothing had been.
    live.until(lambda: live.trains("d"))
    live.store.cancels.create("d", Request(at=live.clock.now(), by="test"))
    states = {name: live.until(lambda name=name: live.ended(name)) for name in NAMES}
    assert states == {**dict.fromkeys("abc", JobState.SUCCEEDED), "d": JobState.CANCELLED}
    for name in "abc":
        steps = [json.loads(line)["step"] for line in traces[name].read_text().splitlines()]
        assert steps == list(range(STEPS)), "each step once"


def test_the_bill_of_the_instance_is_its_jobs_shares_and_the_rest(live: LiveCluster) -> None:
    report = json.loads(everspot("report", "--json"))
    shares = [e.data["share"] for name in NAMES for e in live.list_events(name, EventKind.ASSIGNED)]
    assert shares == [0.25] * 8
    jobs = {job["job_id"]: job for job in report["jobs"]}
    for name in NAMES:
        hours = jobs[name]["job_duration_seconds"] / 3600
        assert jobs[name]["spot_hours"] == pytest.approx(hours / 4, abs=2e-4)
    parts = sum(job["cost_usd"] for job in jobs.values()) + report["idle_and_boot_cost_usd"]
    assert parts == pytest.approx(report["cost_usd"], abs=1e-4)
    shared = [i for i in report["instances"] if i["jobs"]]
    assert {tuple(i["jobs"]) for i in shared} <= {NAMES}
    assert sum(i["jobs_cost_usd"] for i in shared) == pytest.approx(sum(j["cost_usd"] for j in jobs.values()), abs=1e-4)
