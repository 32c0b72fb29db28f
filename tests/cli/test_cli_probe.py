"""`everspot preflight --probe` where no probe succeeds: it ends by itself, names the cause, and leaves nothing that
runs."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from everspot_core.capacity.launching import (
    LaunchedInstance,
    LaunchError,
    LaunchIntent,
    LaunchOutcome,
    LaunchPool,
    LaunchTrouble,
)
from everspot_core.jobs.records import Market

Outcome = Callable[[Any, str], LaunchOutcome]


def probe(world: Any, *options: str) -> Any:
    return world.run("--json", "preflight", "--probe", *options)


def rows(answer: Any) -> dict[str, tuple[str, str, str]]:
    """Verdict, detail and fix of each check, by its name."""
    (cluster,) = answer.json["clusters"].values()
    return {check["name"]: (check["verdict"], check["detail"], check["fix"]) for check in cluster["checks"]}


@contextmanager
def launching(world: Any, outcome: Outcome) -> Iterator[None]:
    """A scheduler that launches once for the first job that it finds, with this outcome."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            for seq, job_id in enumerate(world.store.jobs.scan(), 1):
                intent = LaunchIntent(
                    seq=seq, token=f"{seq:032x}", jobs=(job_id,), ordered=False, whole=False, template="lt-1",
                    template_version="1", usd_per_hour=1.0, made_at=world.clock.now(), scheduler_id="s-1",
                    pools=(LaunchPool(instance_type="c6i.large", zone="us-east-1a", market=Market.SPOT, place="s-1"),),
                )  # fmt: skip
                world.store.launching.create(intent.name, intent.settled(outcome(world, job_id)))
                return
            time.sleep(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def refused(kind: LaunchTrouble, code: str) -> Outcome:
    error = LaunchError(market=Market.SPOT, kind=kind, code=code, message="the cloud's words")
    return lambda world, _job_id: LaunchOutcome(errors=(error,), settled_at=world.clock.now())


def is_cancelled(world: Any) -> bool:
    """Whether every probe was submitted and its end was asked for, so that nothing is launched for it later."""
    jobs = world.store.jobs.scan()
    return bool(jobs) and world.store.cancels.scan().keys() == jobs.keys()


def test_a_probe_that_nobody_launches_ends_and_says_that_no_scheduler_runs(world: Any) -> None:
    world.offer("c6i.large")
    answer = probe(world, "--timeout", "1s")
    assert answer.code == 1
    (verdict, detail, fix) = rows(answer)["spot: launch"]
    assert (verdict, "scheduler" in detail, "everspot doctor" in fix) == ("fail", True, True)
    assert is_cancelled(world)


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        (LaunchTrouble.CAPACITY, "InsufficientInstanceCapacity", "add types and zones"),
        (LaunchTrouble.QUOTA, "MaxSpotInstanceCountExceeded", "request more of the quota"),
    ],
)
def test_a_launch_that_the_cloud_refuses_for_now_is_waited_for_until_the_timeout(
    world: Any, kind: LaunchTrouble, code: str, words: str
) -> None:
    world.offer("c6i.large")
    with launching(world, refused(kind, code)):
        answer = probe(world, "--timeout", "3s")
    assert answer.code == 1
    (verdict, detail, fix) = rows(answer)["spot: launch"]
    assert (verdict, detail, words in fix) == ("fail", f"{code}: the cloud's words", True)
    assert is_cancelled(world)


@pytest.mark.parametrize("kind", [LaunchTrouble.CREDENTIALS, LaunchTrouble.REQUEST])
def test_a_launch_that_needs_a_person_is_not_waited_for(world: Any, kind: LaunchTrouble) -> None:
    world.offer("c6i.large")
    began = time.monotonic()
    with launching(world, refused(kind, "SomeCode")):
        answer = probe(world, "--timeout", "10m")
    assert time.monotonic() - began < 300, "far less than the timeout"
    assert (answer.code, rows(answer)["spot: launch"][0]) == (1, "fail")
    assert is_cancelled(world)


def test_a_launch_that_names_a_resource_too_new_for_the_cloud_is_waited_for(world: Any) -> None:
    world.offer("c6i.large")
    error = LaunchError(market=Market.SPOT, kind=LaunchTrouble.REQUEST, code="NotThereYet", unresolved=True)
    began = time.monotonic()
    with launching(world, lambda world, _job_id: LaunchOutcome(errors=(error,), settled_at=world.clock.now())):
        answer = probe(world, "--timeout", "5s")
    assert time.monotonic() - began >= 5, "the whole timeout"
    assert (answer.code, rows(answer)["spot: launch"][0]) == (1, "fail")


def test_an_instance_that_never_reports_is_named_with_what_its_agent_needs(world: Any) -> None:
    world.offer("c6i.large")

    def launched(world: Any, job_id: str) -> LaunchOutcome:
        instance = LaunchedInstance(
            instance_id="i-7", instance_type="c6i.large", zone="us-east-1a", market=Market.SPOT, job_id=job_id
        )
        return LaunchOutcome(instances=(instance,), settled_at=world.clock.now())

    with launching(world, launched):
        answer = probe(world, "--timeout", "3s")
    checks = rows(answer)
    assert (answer.code, list(checks)) == (1, ["spot: launch", "spot: agent"])
    assert checks["spot: launch"][:2] == ("ok", "i-7")
    (verdict, detail, fix) = checks["spot: agent"]
    assert (verdict, "i-7: no agent has reported" in detail, "metadata service, DNS" in fix) == ("fail", True, True)
    assert is_cancelled(world)


def test_a_probe_without_capacity_or_with_settings_is_refused(world: Any) -> None:
    assert probe(world).code == 1
    assert world.store.jobs.scan() == {}
    assert world.run("preflight", "--probe", "--settings", "Pulumi.dev.yaml").code == 2
