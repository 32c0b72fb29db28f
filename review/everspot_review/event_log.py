"""A run of the engine, from its event log: the operation on each resource, and its states before and after."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from everspot_core.cluster.declared import DeclaredResource

from everspot_review.report import BrokenRule, Diagnostic

IDLE = frozenset({"same", "read", "read-replacement", "refresh", "discard", "discard-replaced"})
"""Operations of the engine that change no resource of the stack."""

STACK = "pulumi:pulumi:Stack"


@dataclass(frozen=True)
class ResourceState:
    """One side of a step.

    Attributes:
        id: Of the resource in the cloud, empty before it is there.
        retained: Whether deleting it leaves it in the cloud.
        provider: The URN of its provider, empty for a component.
        parent: The URN of the component that it is a part of.
    """

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    id: str
    protected: bool
    retained: bool
    custom: bool
    provider: str = ""
    parent: str = ""


@dataclass(frozen=True)
class LoggedStep:
    """All that the engine does to one resource. `ops`: as the engine calls them, sorted; `diff`: kind of difference by
    the property's path, as the engine writes both."""

    urn: str
    type: str
    ops: tuple[str, ...]
    old: ResourceState | None
    new: ResourceState | None
    diff: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    provider: str = ""

    @property
    def name(self) -> str:
        """Its name within the program."""
        return resource_name(self.urn)

    @property
    def parent_types(self) -> tuple[str, ...]:
        """Types of the components that it is a part of, outermost first."""
        return DeclaredResource(self.urn, self.type, {}).parent_types

    @property
    def grouping(self) -> bool:
        """Whether the resource is a component or the stack itself, which the cloud does not know."""
        state = self.new or self.old
        return self.type == STACK or (state is not None and not state.custom)

    @property
    def idle(self) -> bool:
        """Whether nothing is done to it. To stop protecting it is something, though the engine calls that `same`."""
        return IDLE.issuperset(self.ops) and not self.loosened

    @property
    def loosened(self) -> bool:
        """Whether only its protection or its retention changes."""
        if self.ops != ("same",) or self.old is None or self.new is None:
            return False
        return (self.old.protected, self.old.retained) != (self.new.protected, self.new.retained)


@dataclass(frozen=True)
class EventLog:
    """One run of the engine.

    Attributes:
        steps: by URN.
        rules: the broken rules.
        passed: names of the rules that nothing breaks.
        succeeded: None if the log does not say it.
        whole: whether the log has its end.
    """

    steps: tuple[LoggedStep, ...] = ()
    rules: tuple[BrokenRule, ...] = ()
    passed: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    succeeded: bool | None = None

    @property
    def whole(self) -> bool:
        """Whether the engine came to its end, and steps and rules are all there."""
        return self.succeeded is not None

    @property
    def failed(self) -> bool:
        """Whether the steps of the update are unknown. A broken rule fails the engine's run, but all steps are known
        then."""
        errors = any(diagnostic.severity == "error" for diagnostic in self.diagnostics)
        return errors or not (self.succeeded or (self.whole and any(rule.level == "mandatory" for rule in self.rules)))

    def before(self) -> tuple[DeclaredResource, ...]:
        """Return the resources that are there now."""
        return tuple(declared(step, step.old) for step in self.steps if step.old is not None)

    def after(self) -> tuple[DeclaredResource, ...]:
        """Return the resources that will be there."""
        return tuple(declared(step, step.new) for step in self.steps if step.new is not None)


def declared(step: LoggedStep, state: ResourceState) -> DeclaredResource:
    """Return one side of a step as a declaration."""
    return DeclaredResource(step.urn, step.type, state.inputs, state.provider, state.parent)


def resource_name(urn: str) -> str:
    """Return the name within a URN: all that follows the third `::`, since a name may have any character."""
    parts = urn.split("::", 3)
    return parts[3] if len(parts) == 4 else urn
