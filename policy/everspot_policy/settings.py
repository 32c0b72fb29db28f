"""Which rules count where: levels by environment, bounds, and exceptions with a reason and an end."""

import re
from datetime import date
from fractions import Fraction
from typing import Annotated, Any

from everspot_core.documents import Frozen
from everspot_core.validation.bounds import text_problem
from everspot_core.validation.field_types import Number
from everspot_core.validation.problems import Problems, camel, shown
from everspot_core.validation.yaml_text import BadYaml, load
from pydantic import (
    AfterValidator,
    AliasGenerator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from everspot_policy.rule import Level, Subject
from everspot_policy.rules import RULES
from everspot_policy.stack import MOST_ON_DEMAND, STACK_RULES, Bounds

KNOWN: dict[str, Level] = {
    **{each.id: each.level for each in RULES.values()},
    **{each.id: each.level for each in STACK_RULES.values()},
}
"""The level of every rule where no settings say another."""

LARGEST = 1 << 20  # characters of a file of settings
ALL = "*"


_YEARS = (2020, 2100)


def _printed(value: str, most: int) -> str:
    if reason := text_problem(value, most=most):
        raise ValueError(reason)
    return value


def _day(value: object) -> object:
    """Return a day as it is written, and nothing else: a bare number would be seconds since 1970."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise ValueError(f"has to be a day such as 2027-06-30, not {shown(value)}")
    try:
        day = date.fromisoformat(value)
    except ValueError:
        raise ValueError(f"{shown(value)} is no day of the calendar") from None
    if not _YEARS[0] <= day.year <= _YEARS[1]:
        raise ValueError(f"has to lie in the years {_YEARS[0]} to {_YEARS[1]}, not {shown(value)}")
    return day


Line = Annotated[str, AfterValidator(lambda value: _printed(value, 1024))]
"""A text of one line that is not empty and does not begin or end with a space."""
Word = Annotated[str, AfterValidator(lambda value: _printed(value, 256))]
"""The name of a team or an environment."""
Day = Annotated[date, BeforeValidator(_day)]


class _Written(Frozen):
    """In camelCase, as all settings of a stack."""

    model_config = ConfigDict(alias_generator=AliasGenerator(validation_alias=camel))


class EnvironmentRules(_Written):
    """The rules of one environment; with the name `*`, of all environments."""

    levels: dict[str, Level] = Field(default_factory=dict, description="Level by rule.")
    budget_usd_per_month: Number | None = Field(None, ge=0.01, le=1e9, description="Highest monthly cost.")
    teams: tuple[Word, ...] | None = Field(None, max_length=1000, description="The known teams.")
    on_demand_share: Number | None = Field(
        None, ge=0, le=1, description="Highest on-demand share of standing capacity in development. Default: 0.5."
    )

    @field_validator("teams")
    @classmethod
    def _once(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        twice = sorted({team for team in value or () if (value or ()).count(team) > 1})
        if twice:
            raise ValueError(f"{', '.join(map(shown, twice))}: listed twice")
        return value


class RuleException(_Written):
    """An exception from a rule for one resource, or for a whole stack, until a day."""

    rule: Word = Field(description="The rule's id.")
    resource: Line = Field(
        description="The resource's name in the program, or its URN; of a whole stack, the stack's name.",
    )
    reason: Line = Field(min_length=8, description="The reason, for later readers.")
    until: Day = Field(description="The last day of the exception, in UTC.")
    environments: tuple[Word, ...] = Field((), description="The environments; all by default.")

    def covers(self, rule: str, subject: Subject) -> bool:
        """Return whether it is about this rule and this resource, whatever the day."""
        names_resource = self.resource in (subject.name, subject.urn)
        return self.is_for(subject.environment) and self.rule == rule and names_resource

    def is_for(self, environment: str) -> bool:
        """Return whether it is about this environment."""
        return not self.environments or environment in self.environments


class PolicySettings(_Written):
    """The whole file."""

    environments: dict[Word, EnvironmentRules] = Field(default_factory=dict)
    exceptions: tuple[RuleException, ...] = ()

    def level(self, rule: str, environment: str) -> Level:
        """Return the level of a rule in an environment: the environment's, that of `*`, or the rule's own."""
        for name in (environment, ALL):
            rules = self.environments.get(name)
            if rules is not None and rule in rules.levels:
                return rules.levels[rule]
        return KNOWN[rule]

    def bounds(self, environment: str, high: float | None = None) -> Bounds:
        """Return the bounds of an environment. `high`: the most USD a month that it costs by the estimate."""
        own = self.environments.get(environment, EnvironmentRules())
        fallback = self.environments.get(ALL, EnvironmentRules())
        budget = fallback.budget_usd_per_month if own.budget_usd_per_month is None else own.budget_usd_per_month
        share = fallback.on_demand_share if own.on_demand_share is None else own.on_demand_share
        teams = fallback.teams if own.teams is None else own.teams
        return Bounds(environment, budget, high, teams or (), MOST_ON_DEMAND if share is None else Fraction(share))

    def exception(self, rule: str, subject: Subject) -> RuleException | None:
        """Return the exception that covers a resource, the one that holds longest."""
        covering = [each for each in self.exceptions if each.covers(rule, subject)]
        return max(covering, key=lambda each: each.until, default=None)


def read(text: str, source: str = "The policy settings") -> PolicySettings:
    """Parse the settings from a YAML or JSON text. An empty text gives the defaults.

    Raises:
        everspot_core.validation.problems.BadInputs: with everything that is wrong in it.
    """
    problems = Problems()
    parsed = PolicySettings()
    content = _content(problems, text)
    if isinstance(content, dict):
        try:
            parsed = PolicySettings.model_validate(content)
        except ValidationError as bad:
            for error in bad.errors(include_url=False):
                problems.add(_path(error["loc"]), error["msg"].removeprefix("Value error, "))
        _check_names(problems, content)
    problems.raise_any(source)
    return parsed


def _content(problems: Problems, text: str) -> Any:
    if not problems.need(len(text) <= LARGEST, "", f"has {len(text):,} characters and may have {LARGEST:,}"):
        return None
    try:
        # Dates stay texts, so that an impossible date is reported with all other mistakes.
        content = load(text, moments={"until"}, words={Level.OFF.value})
    except BadYaml as bad:
        if not bad.differences:
            problems.add("", str(bad))
            return None
        for difference in bad.differences:
            problems.add(difference.path, difference.reason)
        content = load(text, strict=False, words={Level.OFF.value})
    content = {} if content is None else content
    problems.need(isinstance(content, dict), "", "has to be a mapping with environments and exceptions")
    return content


def _check_names(problems: Problems, content: dict[str, Any]) -> None:
    """Rules that are named and that there are not."""
    environments = content.get("environments")
    for name, section in (environments if isinstance(environments, dict) else {}).items():
        levels = section.get("levels") if isinstance(section, dict) else None
        if isinstance(levels, dict):
            problems.at(f"environments.{name}.levels").unknown(levels, KNOWN, "is no rule")
    exceptions = content.get("exceptions")
    for index, section in enumerate(exceptions if isinstance(exceptions, list) else []):
        rule = section.get("rule") if isinstance(section, dict) else None
        if isinstance(rule, str) and rule not in KNOWN:
            here = Problems()
            here.unknown([rule], KNOWN, "is no rule")
            problems.add(f"exceptions[{index}].rule", f"{rule} {here.collected[0].reason}")


def _path(steps: tuple[int | str, ...]) -> str:
    """Return a place in the file: `exceptions[2].until`."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return path.lstrip(".")
