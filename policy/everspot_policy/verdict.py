"""What follows from the problems of one resource, with the settings of its environment and the day's exceptions."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from everspot_core.problems import Problem

from everspot_policy.rule import Level, Rule, Subject, problems
from everspot_policy.settings import PolicySettings, RuleException
from everspot_policy.stack import StackRule


@dataclass(frozen=True)
class Verdict:
    """One problem, and how serious it is here. `excepted`: the exception that covers it today, which makes it
    advisory; `expired`: the one that did until it ended."""

    rule: Rule | StackRule
    problem: Problem
    level: Level
    excepted: RuleException | None = None
    expired: RuleException | None = None

    def __str__(self) -> str:
        """For who reads the preview: what is wrong, what to do, and what an exception says of it."""
        told = f"{self.problem}."
        if self.excepted is not None:
            return f"{told} Excepted until {self.excepted.until.isoformat()}: {self.excepted.reason}"
        if self.expired is not None:
            told += f" Its exception ended on {self.expired.until.isoformat()}: {self.expired.reason.rstrip('.')}."
        return f"{told} {self.rule.remedy}"


def verdicts(rule: Rule, subject: Subject, settings: PolicySettings, today: date) -> Iterator[Verdict]:
    """What follows from a rule for one resource; nothing if the rule is off."""
    level = settings.level(rule.id, subject.environment)
    if level is not Level.OFF:
        for problem in problems(rule, subject):
            yield weigh(rule, problem, subject, level, settings, today)


def weigh(
    rule: Rule | StackRule, problem: Problem, subject: Subject, level: Level, settings: PolicySettings, today: date
) -> Verdict:
    """What follows from one problem of a resource. An exception that has ended excuses nothing."""
    found = settings.exception(rule.id, subject)
    if found is None:
        return Verdict(rule, problem, level)
    if today <= found.until:
        return Verdict(rule, problem, Level.ADVISORY, excepted=found)
    return Verdict(rule, problem, level, expired=found)
