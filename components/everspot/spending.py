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


def check_budgets(problems: Problems, budgets: Sequence[TeamBudgetArgs]) -> None:
    """Add a problem for each mistake in the budgets of teams."""
    teams: set[str] = set()
    for index, budget in enumerate(budgets):
        here, team = problems.at(f"budgets[{index}]"), budget["team"]
        allowed = "has to be 1 to 40 letters, digits, spaces, dots, dashes and underscores"
        here.need(bool(TEAM.fullmatch(team)), "team", f"{shown(team)} {allowed}")
        here.need(team not in teams, "team", f"{shown(team)} has a budget already")
        here.number(budget["usd_per_month"], "usdPerMonth", 1, 100_000_000)
        teams.add(team)
