"""`everspot cost audit`: its sums equal the report's, and its advice follows from the month's figures."""

import re

import pytest
from report_helpers import LISTED

HOUR = 3600


def run_audited(world, *arguments):
    frozen = {"EVERSPOT_CLOCK": f"1e-12@{world.clock.now().timestamp()}"}
    answer = world.run(*arguments, env=frozen)
    assert answer.code == 0, answer.err
    return answer


def test_the_audit_adds_up_with_the_report(past):
    past.to(3 * HOUR)
    report, audit = run_audited(past, "report", "--json").json, run_audited(past, "audit", "--json").json
    assert audit["total_usd"] == pytest.approx(report["cost_usd"], abs=2e-6)
    assert sum(k["cost_usd"] for k in audit["kinds"]) == pytest.approx(report["cost_usd"], abs=1e-5)
    agents = sum(p["cost_usd"] for p in audit["pools"])
    assert agents + report["scheduler_cost_usd"] == pytest.approx(report["cost_usd"], abs=1e-5)
    assert (audit["lost"]["interruptions"], audit["lost"]["with_notice"]) == (len(report["interruptions"]), 1)
    assert audit["lost"]["steps_redone"] == report["steps_redone_total"] == 40
    worked = sum(k["hours"] for k in audit["kinds"] if k["kind"] == "work")
    everything = sum(k["hours"] for k in audit["kinds"] if k["kind"] != "scheduler")
    assert audit["utilisation"] == pytest.approx(worked / everything, abs=1e-4)
    assert (audit["month"], audit["complete"], audit["known"]) == ("2026-03", False, True)


def test_an_idle_instance_is_found_by_its_whole_hours(past):
    """i-base has no job from 9000 s on: half an hour of the third hour, and then whole ones."""
    past.to(6 * HOUR)
    (best, *_) = run_audited(past, "audit", "--json").json["measures"]
    assert best["measure"] == "end-idle-instances"
    assert best["saving_usd"] == pytest.approx(3 * LISTED["m6i.large"], abs=1e-6)
    assert best["how"].startswith("the cost of 3 hours in which an instance did nothing")


def test_what_saves_nothing_or_an_unknown_amount_is_not_recommended(past):
    past.to(3 * HOUR)
    audit = run_audited(past, "audit", "--json").json
    # 250 s of work were lost without notice, at the job's mean rate; what a checkpoint takes is next to nothing here.
    (only,) = audit["measures"]
    assert (only["measure"], only["jobs"]) == ("checkpoint-more-often", ["moved"])
    assert only["saving_usd"] == pytest.approx(125 * 0.092056 / (3820 + 1220 + 2690), abs=1e-6)
    explanations = {m["measure"]: m["how"] for m in audit["other_measures"] if m["saving_usd"] is None}
    assert set(explanations) == {"move-to-spot", "set-on-demand-floor", "ask-for-less-memory", "commit-to-use"}
    assert explanations["ask-for-less-memory"] == "the memory of no job was measured"
    out = run_audited(past, "audit").out
    assert "end-idle-instances: not recommended, it would have saved nothing." in out
    assert "move-to-spot: not recommended, its saving is unknown: no such job" in out


def test_a_job_that_asks_for_more_memory_than_it_uses_is_found(world):
    world.offer("c6i.large", "m6i.large")
    world.launch("i-base", 0)
    world.submit("large", 0, resources={"vcpus": 2, "memory_gib": 8})
    world.assign("large", "i-base", 0)
    world.start("large", 0)
    record = world.record("large")
    world.save(record.model_copy(update={"progress": record.progress.model_copy(update={"memory_gib": 3.0})}))
    world.finish("large", 2 * HOUR, 100, 0.9)
    record = world.record("large")
    world.save(record.model_copy(update={"progress": record.progress.model_copy(update={"memory_gib": 3.0})}))
    world.end("i-base", 2 * HOUR)
    audit = run_audited(world, "audit", "--json").json
    (oversized,) = audit["rightsizing"]
    assert (oversized["job_id"], oversized["instance_type"], oversized["would_do"]) == (
        "large",
        "m6i.large",
        "c6i.large",
    )
    assert oversized["saving_usd"] == pytest.approx(2 * (LISTED["m6i.large"] - LISTED["c6i.large"]), abs=1e-6)
    (best,) = audit["measures"]
    assert (best["measure"], best["jobs"], best["saving_usd"]) == (
        "ask-for-less-memory",
        ["large"],
        oversized["saving_usd"],
    )


def test_a_commitment_is_recommended_with_a_given_discount_alone(world):
    world.launch("i-brain", 0)
    world.to(25 * 24 * HOUR)
    assert run_audited(world, "audit", "--json").json["measures"] == []
    (best,) = run_audited(world, "audit", "--json", "--discount", "compute-1y=30").json["measures"]
    hours = 25 * 24 - 1  # from the first full hour on
    assert best["saving_usd"] == pytest.approx(0.3 * LISTED["t3.small"] * hours, rel=1e-3)
    assert "Compute Savings Plan, 1 year" in best["what"]


def test_the_page_has_all_of_it_and_loads_nothing(past, tmp_path):
    past.to(6 * HOUR)
    page = tmp_path / "audit.html"
    out = run_audited(past, "audit", "--html", str(page)).out
    text = page.read_text()
    assert not re.search(r"(?:src|href)=", text)
    for words in ("Audit of 2026-03", "What would have saved most", "end-idle-instances", "Where the dollars went",
                  "Lost work", "Not recommended"):  # fmt: skip
        assert words in text
    assert "1. end-idle-instances: $0.2880" in out
    assert run_audited(past, "audit", "--month", "2026-03").out == run_audited(past, "audit").out


def test_people_read_the_whole_month_first_and_each_table_below_its_title(past):
    past.to(6 * HOUR)
    audit, lines = run_audited(past, "audit", "--json").json, run_audited(past, "audit").out.splitlines()
    head = [line for line in lines if line.startswith(("audit of", "as of", "cost", "utilisation", "lost work"))]
    assert [line.split()[0] for line in head] == ["audit", "as", "cost", "utilisation", "lost"]
    assert f"{100 * audit['utilisation']:.1f} %" in head[3]
    titles = [line for line in lines if line in ("What would have saved most", "Where the dollars went", "Pools")]
    assert titles == ["What would have saved most", "Where the dollars went", "Pools"]
    assert "Each measure's saving is computed alone, from this month's rows. Two measures may" in " ".join(lines)


def test_a_month_that_has_not_begun_and_an_empty_one(world):
    world.to(0)
    answer = world.run("audit", "--month", "2126-01")
    assert (answer.code, "has not begun" in answer.err) == (2, True)
    audit = run_audited(world, "audit", "--json").json
    assert (audit["total_usd"], audit["utilisation"], audit["measures"]) == (0, None, [])
