"""`everspot changes`: the applied changes, their pull requests, and the monthly cost before and after."""

from datetime import date, timedelta
from typing import Any

from everspot_cli.ui.panels.changes import panel
from everspot_core.cluster.applied_change import AppliedChange, PullRequest
from everspot_core.estimate.model import CostFigures, Estimate, Range


def span(usd: float) -> Range:
    return Range(low=usd - 1, expected=usd, high=usd + 1, on_demand=usd * 2)


def figures(usd: float) -> CostFigures:
    return CostFigures(total=span(usd), teams={"vision": span(usd)}, parts=())


def a_change(world: Any, hours: int, **more: Any) -> AppliedChange:
    estimate = Estimate(before=figures(90), after=figures(1234.5), prices_as_of=date(2026, 2, 1))
    pull = PullRequest(number=7, title="More [bold]of it[/bold]", url="https://forge.test/7", author="ann")
    fields = {"pull_request": pull, "estimate": estimate, "steps": {"create": 2, "update": 1}} | more
    at = world.clock.now() + timedelta(hours=hours)
    return AppliedChange(at=at, environment="dev", revision="c" * 40, digest=f"{hours:064x}", **fields)


def test_changes_are_listed_in_their_order_with_what_they_cost(world: Any) -> None:
    world.store.changes.add(a_change(world, 2, pull_request=None, estimate=None))
    world.store.changes.add(a_change(world, 1))
    shown = world.run("changes")
    first, second = shown.out.splitlines()[1:3]
    assert shown.code == 0 and first.startswith("2026-03-01 13:00 dev")
    for words in ("#7 More [bold]of it[/bold]", "ann", "cccccccccccc", "2 create, 1 update", "$90.00 → $1,234.50"):
        assert words in first
    assert second.rstrip().endswith("unknown"), "what nobody knew is never $0"
    older, newer = world.run("changes", "--json").json["changes"]
    assert (older["at"], older["pull_request"]["url"]) == ("2026-03-01T13:00:00Z", "https://forge.test/7")
    assert older["before"]["total"] == {"low": 89.0, "expected": 90.0, "high": 91.0, "on_demand": 180.0}
    assert older["after"]["teams"]["vision"]["expected"] == 1234.5
    assert (older["prices_as_of"], newer["pull_request"], newer["before"]) == ("2026-02-01", None, None)


def test_an_update_that_failed_is_told_and_its_cost_after_it_is_unknown(world: Any) -> None:
    world.store.changes.add(a_change(world, 1, outcome="failed"))
    out = world.run("changes").out
    assert "failed: 2 create, 1 update" in out and "$90.00 → unknown" in out
    (row,) = world.run("changes", "--json").json["changes"]
    assert (row["outcome"], row["after"], row["before"]["total"]["expected"]) == ("failed", None, 90.0)
    shown = panel(world.store.changes.all())
    assert (shown.summary, shown.lines[0].difference) == ("0 changes applied, 1 update failed.", "unknown")


def test_a_narrow_terminal_gets_all_that_matters(world: Any) -> None:
    world.store.changes.add(a_change(world, 1))
    out = world.run("changes", env={"COLUMNS": "80"}).out
    assert all(words in out for words in ("dev", "#7 More", "2 create, 1 update", "$90.00 → $1,234.50"))


def test_a_side_that_is_not_known_is_told_as_such(world: Any) -> None:
    unknown = Estimate(before=None, after=figures(5), prices_as_of=date(2026, 2, 1))
    world.store.changes.add(a_change(world, 1, estimate=unknown))
    none = figures(1).model_copy(
        update={"unpriced": ("fleet",), "total": Range(low=0, expected=0, high=0, on_demand=0)}
    )
    least = figures(7).model_copy(update={"unpriced": ("fleet",)})
    world.store.changes.add(
        a_change(world, 2, estimate=Estimate(before=none, after=least, prices_as_of=date(2026, 2, 1)))
    )
    assert "unknown → at least $7.00" in world.run("changes").out
    assert world.run("changes", "--json").json["changes"][1]["before"] is None
    assert "unknown → $5.00" in world.run("changes").out
    assert world.run("changes", "--json").json["changes"][0]["before"] is None


def test_a_cluster_without_any_says_so(world: Any) -> None:
    assert world.run("changes").out == "No change has been applied by `everspot review apply` yet.\n"
    assert world.run("changes", "--json").json["changes"] == []
