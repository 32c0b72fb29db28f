"""One cluster on Google Cloud through every kind of interruption, with real agents, jobs and a real scheduler.

A launched Spot instance is taken with the notice that was asked for, a group's with the 30 seconds that all get, an
on-demand one by its host's failure; a user drills, drains, and reads what it was worth.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_google import GoogleLive, everspot
from everspot_clouds.gcp.rules import PREEMPTED
from everspot_core.costs.attempts import Interruption, attempts, interruptions
from everspot_core.jobs.records import EventKind, JobState, Market, Reason

pytestmark = pytest.mark.timeout(1800)
AUDIT = Path(__file__).parents[2] / "tools/audit_bill.py"
STANDING = "n2-standard-8"
EVERY = 10
"""Steps between the checkpoints of the job whose instance fails."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleLive]:
    """Three jobs run, each on an instance of its own: launched Spot, on demand, and of a group."""
    folder = tmp_path_factory.mktemp("google")
    with GoogleLive(folder) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVERSPOT_CLOCK", cluster.cloud.market.clock.variable)  # the command reckons in the market's time
        cluster.stand(STANDING)
        cluster.toy("held", folder / "held.jsonl", resources={"vcpus": 6})  # more than what is launched has
        cluster.toy("noticed", folder / "noticed.jsonl")
        cluster.toy("broken", folder / "broken.jsonl", checkpoint_every=EVERY, priority="critical")
        yield cluster


def again(live: GoogleLive, job: str, owner: str, number: int = 1) -> Interruption | None:
    """The interruption of a job that was on an instance, once it trains again: its last of so many."""
    history = interruptions(attempts(live.store.events(job)))
    if len(history) < number or history[-1].resumed_step is None:
        return None
    assert history[-1].attempt.instance_id == owner
    return history[-1]


def executed(live: GoogleLive, job: str) -> list[int]:
    """Every step that a job's processes really made."""
    return [json.loads(line)["step"] for line in (live.folder / f"{job}.jsonl").read_text().splitlines()]


def test_a_notice_is_used_to_the_last_step_and_the_job_goes_on_elsewhere(live: GoogleLive) -> None:
    first = live.until(lambda: live.trains("noticed", steps=5))
    assert first.isdecimal() and first in live.agents()
    live.cloud.do("interrupt", instance=first)
    moved = live.until(lambda: again(live, "noticed", first))
    (interruption,) = live.list_events("noticed", EventKind.INTERRUPTED)
    assert (moved.attempt.reason, moved.steps_redone) == (Reason.NOTICE, 0)
    assert moved.resumed_step == interruption.data["step"] == interruption.data["durable_step"] >= 5
    assert 0 < float(interruption.data["notice_to_durable_seconds"]) < 120
    second = live.until(lambda: live.trains("noticed", moved.resumed_step + 5))
    assert second != first and second in live.agents()
    steps = executed(live, "noticed")
    assert steps == list(range(len(steps))), "each step once"
    live.until(lambda: first in live.store.ends.scan() or None)
    assert live.store.ends.get(first).value.interrupted
    assert (PREEMPTED, first) in live.until(lambda: live.waiting("-watch"))


def test_thirty_seconds_are_enough_and_a_group_repairs_what_was_taken_by_its_name(live: GoogleLive) -> None:
    name, vm = live.until(lambda: live.member("standing"))
    assert live.until(lambda: live.trains("held", steps=5)) == vm
    live.cloud.do("interrupt", instance=vm)
    moved = live.until(lambda: again(live, "held", vm))
    (interruption,) = live.list_events("held", EventKind.INTERRUPTED)
    # The machine is switched off with the message, so the agent may notice either first.
    assert moved.attempt.reason in (Reason.NOTICE, Reason.SHUTDOWN) and moved.steps_redone == 0
    assert moved.resumed_step == interruption.data["step"] == interruption.data["durable_step"] >= 5
    assert 0 < float(interruption.data["notice_to_durable_seconds"]) < 30
    assert live.member("standing") == (name, moved.resumed_on) and moved.resumed_on != vm
    steps = executed(live, "held")
    assert steps == list(range(len(steps))), "each step once"
    live.until(lambda: vm in live.store.ends.scan() or None)
    assert live.store.ends.get(vm).value.interrupted


def test_where_a_host_fails_no_more_is_lost_than_since_the_last_checkpoint(live: GoogleLive) -> None:
    first = live.until(lambda: live.trains("broken", steps=EVERY + 1))
    assert live.agents()[first]["scheduling"]["provisioningModel"] == "STANDARD"
    live.cloud.do("interrupt", instance=first, notice=False)
    moved = live.until(lambda: again(live, "broken", first))
    assert moved.attempt.reason is Reason.LOST and moved.resumed_on != first
    assert moved.resumed_step >= EVERY and moved.resumed_step % EVERY == 0
    steps = executed(live, "broken")
    assert len(steps) - len(set(steps)) <= EVERY
    live.until(lambda: first in live.store.ends.scan() or None)
    assert not live.store.ends.get(first).value.interrupted, "nobody took it: it broke, and is billed"
    live.until(lambda: first not in live.agents())  # an instance that only stopped would still cost its disk


def test_a_drill_interrupts_as_the_cloud_would_and_nothing_is_redone(live: GoogleLive) -> None:
    owner = live.until(lambda: live.trains("noticed"))
    everspot("interrupt", "noticed")
    moved = live.until(lambda: again(live, "noticed", owner, number=2))
    assert (moved.attempt.reason, moved.steps_redone) == (Reason.DRILL, 0)
    live.until(lambda: live.trains("noticed", moved.resumed_step + 2))
    steps = executed(live, "noticed")
    assert steps == list(range(len(steps)))


def test_a_job_is_done_and_people_are_told_what_they_ask(live: GoogleLive, tmp_path: Path) -> None:
    everspot("cancel", "held")
    short = live.program("short", tmp_path, resources={"vcpus": 6})  # where that one was
    assert live.until(lambda: live.ended(short)) is JobState.SUCCEEDED
    for words in (["fleet"], ["jobs"], ["instances", "--all"], ["job", "noticed"]):
        everspot(*words)
    checks = {c["name"]: c["verdict"] for c in json.loads(everspot("doctor", "--json"))["checks"]}
    assert set(checks.values()) <= {"ok", "warn", "skip"}, checks


def test_a_drain_stops_every_job_at_a_checkpoint_and_nothing_that_was_launched_is_left(live: GoogleLive) -> None:
    owners = {job: live.until(lambda job=job: live.trains(job)) for job in ("noticed", "broken")}
    everspot("drain")
    live.until(lambda: not live.agents())
    for job, owner in owners.items():
        interruption = live.list_events(job, EventKind.INTERRUPTED)[-1]
        assert (interruption.instance_id, interruption.data["reason"]) == (owner, Reason.DRAIN)
        assert interruption.data["step"] == interruption.data["durable_step"]
        assert live.store.records.get(job).value.state is JobState.PENDING
    live.until(lambda: set(owners.values()) <= set(live.store.ends.scan()) or None)
    assert not any(live.store.ends.get(name).value.interrupted for name in owners.values())


def test_the_bill_is_the_markets_own_sum_to_the_cent(live: GoogleLive) -> None:
    early = live.spot("early")
    live.until(lambda: early in live.store.launches.scan() or None)
    live.cloud.do("interrupt", instance=early, notice=False)
    live.until(lambda: early in live.store.ends.scan() or None)
    report = json.loads(everspot("report", "--settle", "--json"))
    log = live.folder / "market.jsonl"
    words = [sys.executable, AUDIT, log, "--cloud", "gcp", "--until", report["as_of"], "--json"]
    audit = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    costs = {i["instance_id"]: i["cost_usd"] for i in report["instances"]}
    assert costs == pytest.approx({i["id"]: i["cost"] for i in audit["instances"]}, abs=0.005)
    assert report["cost_usd"] == pytest.approx(audit["total_usd"], abs=0.005) and report["cost_usd"] > 0
    interrupted = {name for name, end in live.store.ends.scan().items() if end.value.interrupted}
    ran = {i["id"]: i["seconds"] for i in audit["instances"] if i["id"] in interrupted}
    assert len(interrupted) == 3 and {i["market"] for i in audit["instances"] if i["id"] in interrupted} == {
        Market.SPOT
    }
    # On a busy machine the early one may have been noticed after its first minute, which alone is free.
    assert {name for name in interrupted if costs[name] == 0} == {name for name, seconds in ran.items() if seconds < 60}
