"""The judgement of one resource's problems, with the settings of its environment and the exceptions of the day."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from everspot_core.validation.problems import Problem

from everspot_policy.rule import Level, Rule, Subject
from everspot_policy.settings import PolicySettings, RuleException
from everspot_policy.stack import StackRule

MAX_PROBLEMS = 8
"""Problems of one resource with one rule that are written out."""


@dataclass(frozen=True)
class Judgement:
    """A rule that a resource breaks, by one or more problems, and how serious that is here.

    `excepted`: the exception that covers it today, which makes it advisory; `expired`: the one that did until it ended.
    """

    rule: Rule | StackRule
    problems: tuple[Problem, ...]
    level: Level
    excepted: RuleException | None = None
    expired: RuleException | None = None

    def __str__(self) -> str:
        """Return the text for a reader of the preview: the problem, the remedy, and the exception."""
        text = "; ".join(str(problem) for problem in self.problems[:MAX_PROBLEMS])
        more = len(self.problems) - MAX_PROBLEMS
        text += f"; and {more} more." if more > 0 else "."
        if self.excepted is not None:
            return f"{text} Excepted until {self.excepted.until.isoformat()}: {self.excepted.reason}"
        if self.expired is not None:
            text += f" Its exception ended on {self.expired.until.isoformat()}: {self.expired.reason.rstrip('.')}."
        return f"{text} {self.rule.remedy}"


def weigh(
    rule: Rule | StackRule,
    problems: Sequence[Problem],
    subject: Subject,
    level: Level,
    settings: PolicySettings,
    today: date,
) -> Judgement:
    """Return the judgement of a resource's problems with a rule of this level. An exception that ended excuses
    nothing."""
    exception = settings.exception(rule.id, subject)
    if exception is None:
        return Judgement(rule, tuple(problems), level)
    if today <= exception.until:
        return Judgement(rule, tuple(problems), Level.ADVISORY, excepted=exception)
    return Judgement(rule, tuple(problems), level, expired=exception)
