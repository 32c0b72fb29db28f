"""From the engine's event log to the report on an environment."""

from everspot_clouds.base.resources import ResourceKinds
from everspot_core.cluster.declared import secret
from everspot_core.estimate.model import Estimate

from everspot_review.digest import compared, digest
from everspot_review.event_log import EventLog, LoggedStep, ResourceState
from everspot_review.jobs import RunningJobs, deed, effects
from everspot_review.report import (
    Deed,
    Diagnostic,
    EnvironmentReport,
    PreviewOutcome,
    PropertyChange,
    ResourceStep,
)
from everspot_review.values import MISSING, NOT_KNOWN, confidential, differences, masked, readable_sides, structure

_MOST_CHANGES = 200
"""Changed properties that are reported for one resource. Nobody reads more, and the digest covers all."""


def judge(
    log: EventLog,
    *,
    environment: str,
    stack: str,
    kinds: ResourceKinds,
    base: str = "",
    head: str = "",
    estimate: Estimate | None = None,
    running: RunningJobs | None = None,
    failure: str = "",
) -> EnvironmentReport:
    """Return the report on the steps of a logged preview.

    Args:
        log: The event log.
        environment: Its name.
        stack: The stack's name.
        kinds: The clouds' kinds of resources.
        base: The older revision of the change.
        head: The newer revision of the change.
        estimate: The cost, None without an estimate.
        running: Jobs that run now, None if no store could be asked.
        failure: The engine's words if it failed and its log has no reason, for example that it could not be started.
    """
    failed = log.failed or bool(failure)
    steps = [_step(step, kinds) for step in log.steps if not step.idle and not step.grouping]
    diagnostics = list(log.diagnostics)
    if failure and not any(diagnostic.severity == "error" for diagnostic in diagnostics):
        diagnostics.append(Diagnostic(severity="error", text=failure))
    if failed and not log.whole and log.steps:
        diagnostics.append(
            Diagnostic(severity="error", text="The engine's event log has no end: steps may be missing.")
        )
    changes = PreviewOutcome.CHANGES if steps or any(not step.idle for step in log.steps) else PreviewOutcome.UNCHANGED
    return EnvironmentReport(
        environment=environment,
        stack=stack,
        outcome=PreviewOutcome.FAILED if failed else changes,
        base=base,
        head=head,
        steps=tuple(steps),
        stays=sum(step.idle and not step.grouping for step in log.steps),
        first=bool(log.steps) and not failed and all(step.old is None for step in log.steps),
        whole=log.whole,
        rules=tuple(rule.model_copy(update={"message": masked(rule.message)}) for rule in log.rules),
        passed=log.passed,
        diagnostics=tuple(
            diagnostic.model_copy(update={"text": masked(diagnostic.text)}) for diagnostic in diagnostics
        ),
        effects=effects(log.steps, kinds, running),
        estimate=None if estimate is None else _as_known(estimate, failed=failed),
        digest="" if failed else digest(log),
    )


def _as_known(estimate: Estimate, *, failed: bool) -> Estimate:
    """Return the report without a cost after a failed preview: the future resources, and their cost, are unknown
    then."""
    return estimate.model_copy(update={"after": None}) if failed else estimate


def _step(step: LoggedStep, kinds: ResourceKinds) -> ResourceStep:
    old = step.old
    return ResourceStep(
        urn=step.urn,
        type=step.type,
        name=step.name,
        deed=deed(step),
        changes=tuple(_changes(step)[:_MOST_CHANGES]),
        protected=old is not None and old.protected,
        stateful=step.type in kinds.stateful,
        retained=old is not None and old.retained and deed(step) in (Deed.DELETE, Deed.REPLACE),
    )


def _changes(step: LoggedStep) -> list[PropertyChange]:
    if step.loosened:
        return _loosened(step)
    if step.old is None or step.new is None:
        return []
    property_changes: list[PropertyChange] = []
    for path, kind in sorted(step.diff.items()):
        property_changes += _property(step.old, step.new, path, replaces="replace" in kind)
    return property_changes + _loosened(step)


def _property(old: ResourceState, new: ResourceState, path: str, *, replaces: bool) -> list[PropertyChange]:
    """Return a property's change; for a document within a text, such as a policy or packed user data, the differing
    parts of it."""
    old_value, new_value = compared(old, path), compared(new, path)
    if old_value is MISSING and new_value is MISSING:
        return [PropertyChange(path=path, after=NOT_KNOWN, replaces=replaces)] if replaces else []
    hide = any(confidential(side.inputs, path) for side in (old, new))
    if not hide and not secret(old_value) and not secret(new_value) and (parts := _parts(old_value, new_value)):
        return [
            _change(f"{path}{_joint(rel)}{rel}", readable_sides(a, b, hide=h), replaces=replaces)
            for rel, a, b, h in parts
        ]
    return [_change(path, readable_sides(old_value, new_value, hide=hide), replaces=replaces)]


def _change(path: str, sides: tuple[str | None, str | None], *, replaces: bool) -> PropertyChange:
    return PropertyChange(path=path, before=sides[0], after=sides[1], replaces=replaces)


def _joint(path: str) -> str:
    """Return the separator between a property and the path of a part of it."""
    return "" if not path or path.startswith("[") else "."


def _parts(old_value: object, new_value: object) -> list[tuple[str, object, object, bool]]:
    """Return the differences within documents: path, both sides, and whether their name says that they are secret."""
    if old_value is MISSING or new_value is MISSING:
        return []
    inner, outer = structure(old_value), structure(new_value)
    if (inner, outer) == (old_value, new_value) or type(inner) is not type(outer):
        return []
    parts = differences(inner, outer)
    return [(path, a, b, confidential(inner, path) or confidential(outer, path)) for path, a, b in parts]


def _loosened(step: LoggedStep) -> list[PropertyChange]:
    if step.old is None or step.new is None:
        return []
    flags = (
        ("(protected)", step.old.protected, step.new.protected),
        ("(kept when deleted)", step.old.retained, step.new.retained),
    )
    return [
        PropertyChange(path=path, before=str(before).lower(), after=str(after).lower())
        for path, before, after in flags
        if before != after
    ]
