"""The demo's checks: each one fails if its condition is violated."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from everspot_core.capacity.catalogue import builtin
from everspot_local.demo.checks import Check, promises, sweep_promises, waited_in_time
from everspot_local.demo.phases import Phases
from everspot_local.demo.site import DEMO_CLOUDS, load_site
from everspot_local.demo.story import SPECS
from rich.console import Console

ROOT = Path(__file__).parents[2]
BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)
UNTIL = BEGAN + timedelta(minutes=30)
AWS = load_site("aws")
STROKE = {"kind": "notice", "job_id": "normal-a-1", "epoch": 1, "instance_id": "i-0"}
COSTS = {"cost_usd": 0.08, "cost_per_trial_usd": 0.01, "cost_per_useful_trial_usd": 0.0114}


def at(minutes: float) -> str:
    return (BEGAN + timedelta(minutes=minutes)).isoformat()


def report() -> dict[str, Any]:
    """The report of a run that satisfies every check."""
    done = {"state": "SUCCEEDED", "accuracy": 0.9, "submitted_at": at(0), "ended_at": at(40), "cost_usd": 0.01}
    names = ("critical", "normal-a", "normal-b", "patient")
    jobs = [{**done, "job_id": f"{name}-1", "name": name} for name in names]
    jobs[-1] |= {"deadline_at": at(115), "deadline_met": True}
    jobs += [{**done, "job_id": f"rates-t{n:04d}", "name": "rates", "accuracy": 0.5} for n in range(8)]
    trials = [str(job["job_id"]) for job in jobs[4:]]
    homes: list[tuple[list[str], str, float]] = [
        (["normal-a-1"], "spot", 1),
        (["patient-1"], "on-demand", 25),
        (trials[:5], "spot", 20),
        (trials[5:], "spot", 20),
    ]
    return {
        "jobs": jobs,
        "instances": [
            {
                "instance_id": f"i-{n}",
                "jobs": names,
                "market": market,
                "instance_type": "c6i.large",
                "launched_at": at(minutes),
            }
            for n, (names, market, minutes) in enumerate(homes)
        ],
        "interruptions": [STROKE, {**STROKE, "epoch": 2, "instance_id": "i-9"}, {**STROKE, "epoch": 3, "kind": "lost"}],
        "sweeps": [{"sweep": "rates", **COSTS}],
        "steps_redone_total": 22,
        "steps_redone_after_notice": 0,
        "notice_to_durable_seconds": [1.5, 2.0],
        "cost_usd": 0.2,
        "on_demand_cost_usd": 0.3,
    }


def shown() -> dict[str, Any]:
    """The output of `everspot sweep --show` about it."""
    trials = [{"job_id": f"rates-t{n:04d}", "state": "PRUNED" if n == 3 else "COMPLETE"} for n in range(8)]
    return {"trials": trials, "over": True, **COSTS}


@pytest.mark.parametrize("cloud", DEMO_CLOUDS)
def test_each_cloud_plays_with_stacks_in_which_the_patient_job_fits_the_dry_types_alone(
    cloud: str, audit_bill: Any
) -> None:
    site = load_site(cloud)
    assert site.billed_cloud in audit_bill.FREE
    *accounts, cluster = (ROOT / f"stacks/Pulumi.{stack}.yaml" for stack in site.stacks)
    for account in accounts:
        assert yaml.safe_load(account.read_text())["config"]["everspot:account"]["cloud"] == cloud
    declared = yaml.safe_load(cluster.read_text())["config"]
    patient = yaml.safe_load((SPECS / "patient.yaml").read_text())["resources"]
    job_vcpus = int(
        dict(setting.split("=") for setting in site.patient if "=" in setting).get("resources.vcpus", patient["vcpus"])
    )
    types = [builtin().get(name) for name in declared["everspot:cluster"]["capacity"]["instanceTypes"]]
    assert {f"{kind.name}/*" for kind in types if kind.vcpus >= job_vcpus} == set(site.dry)
    assert len(site.dry) < len(types)


def broken(checks: list[Check]) -> list[str]:
    return [check.name for check in checks if not check.holds]


def job(document: dict[str, Any], name: str) -> dict[str, Any]:
    entry: dict[str, Any] = next(job for job in document["jobs"] if job["name"] == name)
    return entry


def test_a_good_run_keeps_them_all() -> None:
    document = report()
    assert (
        broken([*promises(document, 500), waited_in_time(document, UNTIL, AWS), *sweep_promises(document, shown(), 2)])
        == []
    )


FAULTS: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "a failed job": ("all four jobs succeeded", lambda r: job(r, "critical").update(state="FAILED")),
    "one notice": ("at least two interruptions with notice", lambda r: r["interruptions"].pop(0)),
    "no kill": ("a hard kill without notice", lambda r: r["interruptions"].pop() and r.update(steps_redone_total=0)),
    "lost steps": ("no step redone after a notice", lambda r: r.update(steps_redone_after_notice=1)),
    "too much redone": (
        "at most one checkpoint interval redone per hard kill", lambda r: r.update(steps_redone_total=501)
    ),
    "too late": ("durable within the notice", lambda r: r["notice_to_durable_seconds"].append(120.0)),
    "inaccurate": ("test accuracy of at least 88 %", lambda r: job(r, "normal-b").update(accuracy=0.87)),
    "dear": ("a job without a deadline goes to spot", lambda r: r["instances"][0].update(market="on-demand")),
}  # fmt: skip


@pytest.mark.parametrize(("name", "spoil"), FAULTS.values(), ids=FAULTS)
def test_a_broken_promise_is_named(name: str, spoil: Callable[[dict[str, Any]], Any]) -> None:
    document = report()
    spoil(document)
    assert broken(promises(document, 500)) == [name]


def test_a_job_may_go_on_later_on_an_instance_that_is_older_than_its_first_one() -> None:
    document = report()
    standing = {"instance_id": "i-9", "jobs": ["normal-a-1"], "market": "on-demand", "launched_at": at(-5)}
    document["instances"].append({**standing, "instance_type": "c6i.large"})
    assert broken(promises(document, 500)) == []
    document["interruptions"][0]["instance_id"] = "i-9"
    document["interruptions"][1]["instance_id"] = "i-0"
    assert broken(promises(document, 500)) == ["a job without a deadline goes to spot"]


@pytest.mark.parametrize(
    ("changes", "until", "passes"),
    [
        ({}, UNTIL, True),
        ({"launched_at": at(31)}, UNTIL, True),
        ({"launched_at": at(33)}, UNTIL, False),
        ({"launched_at": at(2)}, UNTIL, False),
        ({"market": "spot"}, UNTIL, False),
        ({}, None, False),
    ],
    ids=["sooner", "at the last moment", "after it", "without waiting", "not on-demand", "never told"],
)
def test_the_patient_job_waits_until_its_last_safe_moment_at_most(
    changes: dict[str, Any], until: datetime | None, passes: bool
) -> None:
    document = report()
    document["instances"][1].update(changes)
    assert waited_in_time(document, until, AWS).holds is passes
    job(document, "patient").update(deadline_met=False)
    assert not waited_in_time(document, until, AWS).holds


def test_the_sweeps_promises_name_what_is_amiss() -> None:
    document, few = report(), shown()
    assert [check.figure for check in sweep_promises(document, shown(), 2)] == [
        "7 done, 1 ended early",
        "8 on 2 instances, 2 at once on one",
        "$0.0100 for each trial, $0.0114 for each useful one",
    ]
    few["trials"][0]["state"] = "FAIL"
    assert broken(sweep_promises(document, few, 2)) == ["a sweep of eight small trials"]
    assert broken(sweep_promises(document, shown(), 1)) == ["its trials share instances"]
    assert broken(sweep_promises(document, {**shown(), "cost_usd": 0.09}, 2)) == ["its dollars are the report's"]


def test_what_each_part_took_is_said_at_the_end_also_of_the_one_that_failed() -> None:
    phases = Phases(Console(quiet=True))
    with phases.phase("the first part", "first"):
        pass
    with pytest.raises(RuntimeError), phases.phase("the second part", "second"):
        raise RuntimeError
    assert phases.line().endswith("min (first 0 s, second 0 s)")


def test_the_demo_refuses_emulated_machines_in_one_sentence() -> None:
    command = [sys.executable, "-m", "everspot_local.demo", "--machines", "vm"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 2
    assert "thirty times as slow" in answer.stderr and "everspot-local up --machines vm" in answer.stderr
