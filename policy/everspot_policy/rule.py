"""The parts of a rule: its resource types, its severity, and a pure function from a declared resource to problems."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from everspot_core.validation.problems import Problem


class Level(StrEnum):
    """The consequence of a broken rule."""

    MANDATORY = "mandatory"
    """Preview and update fail."""
    ADVISORY = "advisory"
    """The problem is reported."""
    OFF = "off"
    """The rule is not checked."""


class Severity(StrEnum):
    """The severity of a broken rule, for deciding what to fix first."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


@dataclass(frozen=True)
class Subject:
    """One resource as a rule sees it.

    Attributes:
        inputs: in camelCase, as the provider's own SDK names them, with the engine's markers for values that are secret
            or only known after an update.
        environment: the stack's name, which counts where no tag says it.
        protected: whether the engine refuses to delete it; None: not known.
        urn: its own URN.
        depends: the URNs that its inputs come from.
        secrets: texts among the inputs that are marked as secret.
    """

    type: str
    inputs: Mapping[str, Any]
    name: str = ""
    environment: str = ""
    protected: bool | None = None
    urn: str = ""
    depends: tuple[str, ...] = ()
    secrets: frozenset[str] = field(default=frozenset(), repr=False)


RuleCheck = Callable[[Subject], Iterator[Problem]]


@dataclass(frozen=True)
class Rule:
    """A rule about single resources.

    Attributes:
        title: the requirement, one sentence.
        remedy: how to fix a problem, and the limits of the rule.
        types: patterns of the resource types that it looks at.
        checkov: the ids of Checkov's checks of the same thing.
    """

    id: str
    level: Level
    severity: Severity
    title: str
    remedy: str
    types: tuple[str, ...]
    checkov: tuple[str, ...] = ()
    check: RuleCheck = field(repr=False, kw_only=True)

    def concerns(self, type_: str) -> bool:
        """Return whether the rule looks at resources of this type."""
        return any(fnmatchcase(type_, pattern) for pattern in self.types)


def rule(
    id_: str,
    level: Level,
    severity: Severity,
    *,
    title: str,
    remedy: str,
    types: tuple[str, ...],
    checkov: tuple[str, ...] = (),
) -> Callable[[RuleCheck], Rule]:
    """Make a rule of the function that finds its problems."""
    return lambda check: Rule(id_, level, severity, title, remedy, types, checkov, check=check)


def judge(
    rule: Rule, type_: str, inputs: Mapping[str, Any], *, environment: str = "", protected: bool | None = None
) -> list[Problem]:
    """Return the problems of a rule with a resource of a type with these inputs. Secret or unknown values count as
    right: the rule sees them when they are known, at the latest in the update."""
    return problems(rule, Subject(type_, inputs, environment=environment, protected=protected))


def problems(rule: Rule, subject: Subject) -> list[Problem]:
    """Return the problems of a subject, as `judge` does."""
    return list(rule.check(subject)) if rule.concerns(subject.type) else []
