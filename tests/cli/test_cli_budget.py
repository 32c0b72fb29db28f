"""`everspot cost budget`: caps are set, kept and cleared; spending agrees with the report, and a forecast is
printed."""

import json
from typing import Any

import pytest
from everspot_core.costs.team_budgets import Allowance, Budgets, Caps
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.visit_records import Visit

AS_OF = "2026-03-01T15:00:00Z"


def frozen(world: Any) -> dict[str, str]:
    """The environment that sets the command's clock to the test's time."""
    return {"EVERSPOT_CLOCK": f"1e-12@{world.clock.now().timestamp()}"}


def rows(answer: Any) -> dict[tuple[str | None, str, str], dict[str, Any]]:
    return {(row["team"], row["period"], row["unit"]): row for row in answer.json["budgets"]}


def test_what_is_spent_is_what_the_report_bills(past: Any) -> None:
    past.to(3 * 3600)
    report = past.run("report", "--as-of", AS_OF, "--json").json
    moved = next(job for job in report["jobs"] if job["job_id"] == "moved")
    budgets = rows(past.run("budget", "--json", env=frozen(past)))
    whole, team = budgets[None, "day", "dollars"], budgets["research", "day", "dollars"]
    assert whole["spent"] == pytest.approx(report["cost_usd"], abs=1e-5)
    assert team["spent"] == pytest.approx(moved["cost_usd"], abs=1e-5)
    assert (whole["cap"], whole["until"], whole["begin"]) == (None, "2026-03-02T00:00:00Z", "2026-03-01T00:00:00Z")
    assert budgets[None, "month", "dollars"]["until"] == "2026-04-01T00:00:00Z"
    assert not [key for key in budgets if key[2] == "gpu_hours"], "nobody has a GPU"


def test_what_runs_is_committed_until_its_expected_end_and_the_forecast_goes_on(world: Any) -> None:
    world.launch("i-base", 0)  # m6i.large on-demand: $0.096 an hour
    world.submit("steady", 0, expected_duration="2h", tags={"Team": "research"})
    world.submit("other", 0, expected_duration="2h")
    world.beat("i-base", "steady")
    world.assign("steady", "i-base", 0)
    world.start("steady", 1)
    world.to(3600)
    budgets = rows(world.run("budget", "--json", env=frozen(world)))
    team = budgets["research", "day", "dollars"]
    assert team["spent"] == pytest.approx(0.096)
    assert team["committed"] == pytest.approx(0.192), "as nothing tells how far it is"
    assert team["forecast"] == pytest.approx(0.096 * 12), "an hour of the day's last twelve has passed"


def test_a_cap_is_set_shown_and_cleared(past: Any) -> None:
    past.to(3 * 3600)
    command = ("budget", "set", "--team", "research", "--per", "day")
    done = past.run(*command, "--dollars", "0.05", "--gpu-hours", "3", env=frozen(past))
    assert done.code == 0, done.err
    line = next(line for line in done.out.splitlines() if line.startswith("research"))
    assert "█" in line and "0.0500" in line
    assert "environment" not in done.out, "the answer is of what was set"
    assert past.store.budgets().teams == {"research": Caps(day=Allowance(dollars=0.05, gpu_hours=3))}
    past.run("budget", "set", "--team", "research", "--per", "day", "--dollars", "0.01")
    assert past.store.budgets().teams["research"].day == Allowance(dollars=0.01, gpu_hours=3)
    shown = past.run("budget", env=frozen(past))
    assert "Nothing is left for team research until 2026-03-02 00:00 UTC: its jobs wait." in shown.out
    assert past.run("budget", "set", "--per", "month", "--dollars", "0").code == 0
    assert "nothing may run" in past.run("budget").out
    assert past.run("budget", "clear", "--team", "research").code == 0
    assert past.run("budget", "clear", "--per", "month").code == 0
    budgets = past.store.budgets()
    assert (budgets.teams, budgets.environment) == ({}, Caps())
    assert "No cap is set" in past.run("budget").out


@pytest.mark.parametrize("width", ["80", "200"])
def test_no_figure_is_cut_in_a_narrow_terminal(world: Any, width: str) -> None:
    world.launch("i-base", 0)
    world.submit("steady", 0, expected_duration="20000h", tags={"Team": "research-and-development"})
    world.beat("i-base", "steady")
    world.assign("steady", "i-base", 0)
    world.start("steady", 1)
    world.to(3600)
    team = ("--team", "research-and-development")
    world.run("budget", "set", *team, "--per", "day", "--dollars", "0")
    world.run("budget", "set", *team, "--per", "month", "--dollars", "12345.67", "--gpu-hours", "40000")
    out = world.run("budget", env={**frozen(world), "COLUMNS": width}).out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= int(width)
    for label in ("research-and-development", "environment", "GPU-hours", "COMMITTED", "FORECAST", "nothing may run"):
        assert label in out
    for figure in ("$12,345.67", "40,000.00", "$0.0960", " 0%"):
        assert figure in out


@pytest.mark.parametrize(
    ("arguments", "field", "message"),
    [
        (("budget", "set", "--per", "week"), "--per", "'week' is not one of 'day', 'month'"),
        (("budget", "frob"), "action", "'frob' is not one of 'show', 'set', 'clear'"),
        (("prices", "frob"), "action", "'frob' is not one of"),
        (("budget", "set", "--dollars", "x"), "--dollars", "has to be a valid number"),
        (("jobs", "--limit", "0"), "--limit", "has to be greater than or equal to 1"),
        (("retry",), "ID", "is missing"),
    ],
)
def test_a_value_that_an_option_does_not_take_is_told_as_every_other_error(world, arguments, field, message) -> None:
    answer = world.run(*arguments)
    assert answer.code == 2
    assert answer.err.startswith(
        f"error: `everspot {arguments[0]}` cannot be done: {field} is wrong\n  {field}: {message}"
    )
    assert "Value error" not in answer.err and "╭" not in answer.err
    (problem,) = json.loads(world.run("--json", *arguments).err)["problems"]
    assert problem["field"] == field
    assert problem["problem"].startswith(message)


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["set"], ["--per: is missing: day or month", "--dollars, --gpu-hours: one of them has to be given, or both"]),
        (
            ["set", "--team", " ", "--per", "day", "--dollars", "-1", "--gpu-hours", "nan"],
            ["--team: has to be", "--dollars: has to be a number from 0", "--gpu-hours: has to be a number from 0"],
        ),
        (["clear", "--dollars", "3"], ["--dollars: belongs to set"]),
        (
            ["set", "--team", "(none)", "--per", "day", "--dollars", "1"],
            ["--team: (none) is no team: jobs without one count only for the environment's cap"],
        ),
        (
            ["show", "--per", "day", "--gpu-hours", "3"],
            ["--per: belongs to set and clear", "--gpu-hours: belongs to set"],
        ),
    ],
)
def test_all_that_is_wrong_is_told_at_once_and_nothing_is_changed(world: Any, arguments, messages) -> None:
    done = world.run("budget", *arguments)
    assert done.code == 2
    for words in messages:
        assert words in done.err
    assert world.store.budgets() == Budgets()


def test_a_job_of_another_cluster_counts_for_no_team_of_this_one(world: Any) -> None:
    """A team may have the same name in both clusters, and home charges its own."""
    world.launch("i-base", 0)
    spec = JobSpec.model_validate({"name": "gpt", "recipe": "image-classification", "tags": {"Team": "vision"}})
    visit = Visit(home="east", job_id="gpt-1", number=1)
    world.store.submit(JobSubmission(job_id="visit-1", spec=spec, submitted_at=world.clock.now(), visit=visit))
    world.assign("visit-1", "i-base", 0)
    world.start("visit-1", 1)
    world.submit("own", 1800, tags={"Team": "vision"})
    world.to(3600)
    set_cap = world.run("budget", "set", "--team", "vision", "--per", "day", "--dollars", "0.01", env=frozen(world))
    assert "Nothing is left" not in set_cap.out
    budgets = rows(world.run("budget", "--json", env=frozen(world)))
    assert budgets["vision", "day", "dollars"]["spent"] == 0
    assert budgets[None, "day", "dollars"]["spent"] == pytest.approx(0.096)
    report = world.run("report", "--json", env=frozen(world)).json
    by_team = {row["value"]: row["cost_usd"] for row in report["cost_by_tag"]["Team"]}
    assert by_team == {"(jobs of other clusters)": pytest.approx(0.096), "vision": 0}
