"""Budgets of teams that the cloud itself watches over."""

from collections.abc import Sequence
from typing import TypedDict

from everspot_clouds.base.project_setup import TEAM
from everspot_core.validation.problems import Problems, shown


class TeamBudgetArgs(TypedDict):
    """A monthly amount beyond which a team's spending is reported. It stops nothing."""

    team: str
    """The value of the tag Team."""
    usd_per_month: float
    """Dollars of a calendar month, 1 to 100,000,000."""


def budget_suffix(team: str) -> str:
    """Return the end of the name of the resource that is a team's budget."""
    return f"budget-{team.replace(' ', '_')}"


def check_budgets(problems: Problems, budgets: Sequence[TeamBudgetArgs]) -> None:
    """Add a problem for each mistake in the budgets of teams."""
    teams: dict[str, str] = {}
    for index, budget in enumerate(budgets):
        here, team = problems.at(f"budgets[{index}]"), budget["team"]
        allowed = "has to be 1 to 40 letters, digits, spaces, dots, dashes and underscores"
        here.need(bool(TEAM.fullmatch(team)), "team", f"{shown(team)} {allowed}")
        other = teams.get(budget_suffix(team))
        here.need(other != team, "team", f"{shown(team)} has a budget already")
        alike = f"{shown(team)} and {shown(other)} differ only in spaces and underscores: rename one of them"
        here.need(other in (None, team), "team", alike)
        here.number(budget["usd_per_month"], "usdPerMonth", 1, 100_000_000)
        teams.setdefault(budget_suffix(team), team)
