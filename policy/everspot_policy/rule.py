"""What a rule is: who it is about, how serious it is, and a pure function from a declared resource to problems."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from everspot_core.problems import Problem


class Level(StrEnum):
    """What follows when a rule is broken."""

    MANDATORY = "mandatory"
    """Preview and update fail."""
    ADVISORY = "advisory"
    """It is told."""
    OFF = "off"
    """Nobody looks."""


class Severity(StrEnum):
    """How bad it is, for who has to choose where to begin."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


@dataclass(frozen=True)
class Subject:
    """One resource as a rule sees it.

    `inputs`: in camelCase, as the provider's own SDK names them, with the engine's markers for what is secret or only
    known after an update. `environment`: the stack's name, which counts where no tag says it. `protected`: whether the
    engine refuses to delete it; None: nobody asked. `urn`, `depends`: its own URN and those that its inputs come from.
    `secrets`: texts among the inputs that are marked as secret.
    """

    type: str
    inputs: Mapping[str, Any]
    name: str = ""
    environment: str = ""
    protected: bool | None = None
    urn: str = ""
    depends: tuple[str, ...] = ()
    secrets: frozenset[str] = field(default=frozenset(), repr=False)


Judge = Callable[[Subject], Iterator[Problem]]


@dataclass(frozen=True)
class Rule:
    """A rule about single resources.

    `title`: what has to hold, one sentence. `remedy`: what to do about a problem, and where the rule ends.
    `types`: patterns of the resource types that it looks at. `twins`: the ids of Checkov's checks of the same thing.
    """

    id: str
    level: Level
    severity: Severity
    title: str
    remedy: str
    types: tuple[str, ...]
    twins: tuple[str, ...] = ()
    look: Judge = field(repr=False, kw_only=True)

    def concerns(self, type_: str) -> bool:
        """Whether the rule looks at resources of this type."""
        return any(fnmatchcase(type_, pattern) for pattern in self.types)


def rule(
    id_: str,
    level: Level,
    severity: Severity,
    *,
    title: str,
    remedy: str,
    types: tuple[str, ...],
    twins: tuple[str, ...] = (),
) -> Callable[[Judge], Rule]:
    """Make a rule of the function that finds its problems."""
    return lambda look: Rule(id_, level, severity, title, remedy, types, twins, look=look)


def judge(
    rule: Rule, type_: str, inputs: Mapping[str, Any], *, environment: str = "", protected: bool | None = None
) -> list[Problem]:
    """What a rule finds wrong with a resource of a type with these inputs. Values that are secret or not known yet are
    taken to be right: the rule sees them when they are known, at the latest in the update."""
    return problems(rule, Subject(type_, inputs, environment=environment, protected=protected))


def problems(rule: Rule, subject: Subject) -> list[Problem]:
    """Return the problems of a subject, as `judge` does."""
    return list(rule.look(subject)) if rule.concerns(subject.type) else []
