"""The report's figures: for a known history, at earlier moments, and without prices."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from everspot_cli.tables import money
from everspot_core.jobs.changeover import ChangeoverPart, Changeovers, PartTimes
from everspot_core.jobs.records import EventKind, JobRecord, JobState, Market, Progress, Reason
from everspot_core.jobs.visit_records import Away, Trip, TripEnd
from report_helpers import AS_OF, LISTED, T0, dollars, run_report


def test_the_report_has_what_is_promised_of_it(past):
    report = run_report(past)
    assert {
        "jobs", "interruptions", "steps_redone_after_notice", "steps_redone_total", "cost_usd", "on_demand_cost_usd",
        "savings_percent", "accuracy", "notice_to_durable_seconds", "time_scale", "as_of",
    } <= set(report)  # fmt: skip
    assert [(j["job_id"], j["state"]) for j in report["jobs"]] == [("moved", "SUCCEEDED"), ("steady", "SUCCEEDED")]
    assert (report["as_of"], report["time_scale"], report["cluster"]) == (AS_OF, 1, "test")
    assert report["accuracy"] == 0.89
    assert report["notice_to_durable_seconds"] == [10.0]
    assert (report["steps_redone_after_notice"], report["steps_redone_total"]) == (0, 40)


def test_of_several_accuracies_the_lowest_is_told_and_said_to_be(past):
    def read_accuracy(*which):
        lines = past.run("report", *which, "--as-of", AS_OF).out.splitlines()
        return next(" ".join(line.split()) for line in lines if line.startswith("accuracy"))

    assert read_accuracy() == "accuracy 89.00 %, the lowest of the jobs"
    assert read_accuracy("moved") == "accuracy 89.00 %"


def test_the_report_of_a_known_past_is_known_to_the_last_figure(past):
    """A change here is a change of what users read: look at it, then write the file again."""
    report = run_report(past)
    for price in report["list_prices"]:
        price.pop("age")  # it grows by itself
    golden = Path(__file__).with_name("report.golden.json")
    assert report == json.loads(golden.read_text())


def test_changeovers_are_told_part_by_part_with_what_is_reckoned_with(past):
    assert "Changeovers" not in past.run("report", "--as-of", AS_OF).out
    pool = {"instance_type": "c6i.large", "zone": "us-east-1a", "market": Market.SPOT}
    boots = [PartTimes(part="boot", seconds=[40.0] * 4, **pool), PartTimes(part="of-tomorrow", seconds=[1.0], **pool)]
    past.store.notes.changeovers.write(Changeovers(updated_at=T0, times=boots))
    rows = {(r["part"], r["zone"]): r for r in run_report(past)["changeovers"]}
    assert set(rows) == {(part, None) for part in ("whole", *ChangeoverPart)} | {("boot", "us-east-1a")}
    # Four weigh as much as what was believed: half way from 100 s to 40 s, and from 4 min to 40 s and a quarter more.
    assert (rows["boot", None]["expected_seconds"], rows["boot", None]["upper_seconds"]) == (70.0, 145.0)
    assert rows["boot", None]["measured"] == rows["boot", "us-east-1a"]["measured"] == 4
    assert rows["boot", "us-east-1a"]["expected_seconds"] < 70
    assert rows["whole", None]["expected_seconds"] == 360 - 30
    assert run_report(past, "moved")["changeovers"] == []
    lines = [line.split() for line in past.run("report", "--as-of", AS_OF).out.splitlines()]
    assert ["boot", "all", "4", "1m10s", "2m25s"] in lines


def test_a_report_is_made_though_what_changeovers_took_cannot_be_read(past):
    past.store.control.put("ledger/changeovers.json", b"{")
    assert run_report(past)["changeovers"] == []


def test_the_dollars_of_the_report_by_hand(past):
    report = run_report(past)
    assert report["cost_usd"] == dollars(
        (10800, LISTED["m6i.large"]), (10800, LISTED["t3.small"]),
        (1800, 0.04), (4120 - 1800, 0.05), (5250 - 60, 0.04), (8200 - 60, 0.04),
    )  # fmt: skip
    moved = next(j for j in report["jobs"] if j["job_id"] == "moved")
    assert moved["cost_usd"] == dollars((1600, 0.04), (4020 - 1800, 0.05), (5250 - 4030, 0.04), (8000 - 5310, 0.04))
    # Lost: from the notice at 4000 to training at 4060, from the checkpoint at 5000 to training at 5340.
    assert moved["lost_seconds"] == 60 + 340
    assert moved["on_demand_cost_usd"] == dollars(
        (4000 - 200, LISTED["c6i.large"]), (5000 - 4060, LISTED["m7i.large"]), (8000 - 5340, LISTED["c6i.large"])
    )
    assert report["jobs_cost_usd"] + report["idle_and_boot_cost_usd"] == pytest.approx(report["cost_usd"], abs=2e-6)
    assert sum(i["cost_usd"] for i in report["instances"]) == pytest.approx(report["cost_usd"], abs=1e-5)
    assert sum(u["cost_usd"] for u in report["usage"]) == pytest.approx(report["cost_usd"], abs=1e-5)
    assert report["scheduler_cost_usd"] == dollars((10800, LISTED["t3.small"]))


def test_every_interruption_is_told_with_what_it_cost(past):
    first, second = run_report(past)["interruptions"]
    assert (first["kind"], first["source"], first["instance_id"], first["resumed_on"]) == (
        "notice", "imds", "i-spot1", "i-spot2",
    )  # fmt: skip
    assert (first["steps_redone"], first["resumed_from"], first["changeover_seconds"]) == (0, 2000, 40)
    assert (second["kind"], second["notice_to_durable_seconds"]) == ("lost", None)
    # Metrics had come to step 2540, events only to 2530.
    assert (second["last_step"], second["resumed_from"], second["steps_redone"]) == (2540, 2500, 40)


def test_the_report_names_what_is_left_out_and_the_age_of_prices(past):
    report = run_report(past)
    assert any("EBS" in name for name in report["left_out"])
    assert all(p["source"] and p["age"] for p in report["list_prices"])
    assert {p["instance_type"] for p in report["list_prices"]} == set(LISTED)
    text = past.run("report", "--as-of", AS_OF).out
    assert "Not in these figures" in text and "skypilot-catalog" in text


def test_the_report_of_one_job_has_its_own_money_only(past):
    report = run_report(past, "moved")
    assert report["scope"] == "moved"
    assert report["cost_usd"] == report["jobs"][0]["cost_usd"] == report["jobs_cost_usd"]
    assert report["idle_and_boot_cost_usd"] == 0
    assert len(report["jobs"]) == 1


def test_an_empty_cluster_has_an_empty_report(world):
    report = run_report(world)
    assert (report["cost_usd"], report["savings_percent"], report["accuracy"], report["jobs"]) == (0, None, None, [])
    answer = world.run("report", "--html", str(world.root / "r.html"))
    assert answer.code == 0, answer.err


def test_a_loss_is_shown_as_negative_savings(world):
    world.launch("i-spot1", 0)
    world.price("i-spot1", 0, 0.04)
    world.price("i-spot1", 1, 0.5)
    report = run_report(world)
    assert report["savings_percent"] < -400
    assert report["savings_usd"] < 0


def test_a_report_of_an_earlier_moment_knows_nothing_of_later_ones(past):
    past.submit("later", 9100)
    report = past.run("--json", "report", "--as-of", "2026-03-01T14:08:20+01:00").json  # 4100 s after the beginning
    assert report["as_of"] == "2026-03-01T13:08:20Z"
    jobs = {job["job_id"]: job for job in report["jobs"]}
    assert set(jobs) == {"moved", "steady"}
    assert {job["state"] for job in jobs.values()} == {"RUNNING"}
    assert (jobs["moved"]["steps"], jobs["moved"]["ended_at"], jobs["moved"]["accuracy"]) == (2000, None, None)
    assert all(job["total_duration_seconds"] > 0 for job in report["jobs"])
    answer = past.run("report", "later", "--as-of", "2026-03-01T13:08:20Z")
    assert answer.code == 3
    assert "was submitted after 2026-03-01 13:08:20 UTC" in answer.err


@pytest.mark.parametrize(
    ("seconds", "state", "steps", "abroad_usd", "is_known", "ended_trips"),
    [
        (50, "PENDING", 0, 0.0, True, 0),
        (1000, "AWAY", 0, 0.0, False, 0),  # the host's bill of that moment is not known
        (2500, "PENDING", 300, 5.0, True, 1),
        (3500, "AWAY", 300, 5.0, False, 1),
        (5000, "AWAY", 900, 7.0, True, 1),  # the record has not changed since then
    ],
)
def test_a_report_of_an_earlier_moment_has_the_visits_up_to_then(
    world, seconds, state, steps, abroad_usd, is_known, ended_trips
):
    moment = {second: T0 + timedelta(seconds=second) for second in (100, 2000, 3000, 4000)}
    world.submit("roamer", 0)
    for second, kind, data in (
        (100, EventKind.DEPARTED, {"cluster": "beta", "visit": "v1"}),
        (2000, EventKind.RETURNED, {"cluster": "beta", "visit": "v1", "end": "returned", "step": 300, "usd": 5.0}),
        (3000, EventKind.DEPARTED, {"cluster": "beta", "visit": "v2"}),
    ):
        world.to(second)
        world.store.event_writer("roamer", 0, f"s-{second}").emit(kind, **data)
    trip = Trip(cluster="beta", visit="v1", number=1, since=moment[100], until=moment[2000], end=TripEnd.RETURNED,
                step=300, usd=5.0)  # fmt: skip
    away = Away(cluster="beta", visit="v2", number=2, since=moment[3000], reported_at=moment[4000], usd=2.0)
    record = JobRecord(job_id="roamer", state=JobState.AWAY, changed_at=moment[4000], trips=[trip], away=away,
                       progress=Progress(step=900))  # fmt: skip
    world.store.records.create("roamer", record)
    report = world.run("--json", "report", "--as-of", (T0 + timedelta(seconds=seconds)).isoformat()).json
    (job,) = report["jobs"]
    assert (job["state"], job["steps"], job["abroad_usd"]) == (state, steps, abroad_usd)
    assert (job["cost_known"], len(job["trips"])) == (is_known, ended_trips)


def test_a_job_that_ended_by_a_clock_that_is_ahead_has_ended(world):
    ahead = (datetime.now(UTC) - T0).total_seconds() + 30
    world.launch("i-base", 0)
    world.submit("quick", ahead)
    world.assign("quick", "i-base", ahead)
    world.start("quick", ahead)
    world.finish("quick", ahead + 5, 10, 0.9)
    (job,) = world.run("--json", "report").json["jobs"]
    assert (job["state"], job["accuracy"], job["total_duration_seconds"] >= 0) == ("SUCCEEDED", 0.9, True)
    assert world.run("compare", "quick").code == 0


def test_a_report_of_a_moment_to_come_says_that_it_is_one(world):
    assert "has not come yet" in world.run("--json", "report", "--as-of", "2126-01-01T00:00:00Z").json["notes"][0]


def test_a_job_that_finished_has_done_the_steps_of_its_last_word(past):
    """The record is as old as the last renewal."""
    record = past.record("moved")
    past.save(record.model_copy(update={"progress": record.progress.model_copy(update={"step": 3900})}))
    jobs = {job["job_id"]: job for job in run_report(past)["jobs"]}
    assert jobs["moved"]["steps"] == 4000
    assert {row["job_id"]: row["step"] for row in past.run("--json", "jobs").json}["moved"] == 4000


def test_a_deadline_is_met_by_success_alone(world):
    for name, reason in (("good", Reason.FINISHED), ("bad", Reason.BUDGET), ("off", Reason.CANCEL), ("slow", None)):
        world.submit(name, 0, deadline="1h")
        if reason is not None:
            world.assign(name, "i-base", 0)
            world.start(name, 0)
            world.leave(name, 0, reason)
    world.submit("open", 0, deadline="9h")
    jobs = {job["job_id"]: job["deadline_met"] for job in run_report(world)["jobs"]}
    assert jobs == {"good": True, "bad": False, "off": None, "slow": False, "open": None}


def test_what_was_free_is_told_beside_the_saving_it_swells(world):
    world.launch("i-spot1", 0)
    world.end("i-spot1", 1800, interrupted=True)
    report = run_report(world)
    assert (report["cost_usd"], report["free_usd"]) == (0, 0.02)
    assert report["savings_percent"] == 100
    assert report["savings_percent_if_billed"] == pytest.approx(100 * (1 - 0.04 / LISTED["c6i.large"]), abs=0.01)
    assert "not billed; 100.0 % saved with it" in world.run("report", "--as-of", AS_OF).out


@pytest.mark.parametrize("width", [80, 140])
def test_figures_are_never_cut_by_the_width_of_the_terminal(past, width):
    past.submit("a-name-as-long-as-forty-letters-may-be", 9100)
    for arguments in (("report", "--as-of", AS_OF), ("jobs",), ("instances", "--all"), ("compare", "moved")):
        answer = past.run(*arguments, env={"COLUMNS": str(width)})
        assert answer.code == 0, answer.err
        assert "…" not in answer.out
        assert max(len(line.rstrip()) for line in answer.out.splitlines()) <= width
    table = past.run("report", "--as-of", AS_OF, env={"COLUMNS": str(width)}).out
    for figure in ("$0.0921", "$0.1788", "48.5 %", "SUCCEEDED", "10.0 s", "$0.2880"):
        assert figure in table


def test_ids_are_whole_at_80_columns(world):
    """Users copy the ids from the table."""
    instance, job = "i-0a1b2c3d4e5f60718", "fashion-mnist-95c55731"
    world.launch(instance, 0)
    world.submit(job, 10)
    for start in (20, 100_000):  # of several days, so that moments have their day
        world.assign(job, instance, start)
        world.start(job, start + 10)
        world.lose(job, start + 4000, 100)
    lines = world.run("report", env={"COLUMNS": "80"}).out.splitlines()
    assert max(map(len, lines)) <= 80
    words = [line.split() for line in lines]
    assert sum(job in line for line in words) == 3 and sum(line == [instance] for line in words) == 2
    assert sum(line == ["→", instance] for line in words) == 1


def test_a_failed_job_has_saved_nothing_that_could_be_compared(world):
    """The on-demand cost is that of useful work, and a failed job has no useful work."""
    world.launch("i-spot1", 0)
    world.submit("bad", 0)
    world.assign("bad", "i-spot1", 100)
    world.leave("bad", 3700, Reason.BUDGET)
    (job,) = run_report(world)["jobs"]
    assert (job["state"], job["savings_percent"]) == ("FAILED", None) and job["cost_usd"] > 0
    (line,) = (line for line in world.run("report", "--as-of", AS_OF).out.splitlines() if line.startswith("bad "))
    assert line.split()[1] == "FAILED" and line.split()[-2:] == ["—", "—"]  # saved, metrics


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(0, "$0.00"), (0.00001, "<$0.0001"), (0.0123, "$0.0123"), (-0.5, "-$0.5000"), (-1234.5, "-$1,234.50")],
)
def test_dollars_for_people(amount, shown):
    assert money(amount) == shown


def test_compare_puts_spot_beside_on_demand(past):
    sides = past.run("--json", "compare", "moved").json["sides"]
    assert [s["interruptions"] for s in sides] == [2, 0]
    assert sides[0]["cost_usd"] < sides[1]["cost_usd"]
    assert sides[0]["job_duration_seconds"] - sides[1]["job_duration_seconds"] == 20 + 30 + 250 + 30
    out = past.run("compare", "moved").out
    assert "costs 48.5 % less" in out
    assert "List prices of c6i.large, m7i.large: skypilot-catalog" in out.replace("skypilot-org/", "")
    others = past.run("--json", "compare", "moved", "steady").json["sides"]
    assert others[1]["side"] == "steady as it ran"
    two = past.run("--json", "compare", "moved", "steady").json
    assert two["savings_percent"] == pytest.approx(100 * (1 - 0.092056 / 0.2368), abs=0.01)


def test_what_each_team_and_tag_cost_adds_up_to_the_jobs(past):
    report = run_report(past)
    for rows in report["cost_by_tag"].values():
        assert sum(row["cost_usd"] for row in rows) == pytest.approx(report["jobs_cost_usd"], abs=1e-5)
        assert sum(row["jobs"] for row in rows) == len(report["jobs"])
    assert list(report["cost_by_tag"]) == ["Team"]
    assert "Cost by Team" in past.run("report", "--as-of", AS_OF).out


def test_hours_without_a_price_are_said_and_never_count_as_nothing(world):
    world.launch("i-spot1", 0)
    launch = world.store.launches.scan()["i-spot1"].value
    unpriced = launch.model_copy(update={"instance_id": "i-odd", "instance_type": "odd.huge"})
    world.store.launches.create("i-odd", unpriced)
    answer = world.run("report", "--as-of", AS_OF)
    assert run_report(world)["unpriced_hours"] == 3
    assert "≥ $" in answer.out
    assert "3 h have no price" in answer.out
    assert "every sum is less than what will be billed" in answer.out
