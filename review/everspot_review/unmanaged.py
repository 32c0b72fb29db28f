"""The resources that a change only takes out of the state. They stay in the cloud, and are billed."""

from collections.abc import Sequence

from everspot_clouds.base.resources import ResourceKinds
from everspot_clouds.estimating import estimated
from everspot_core.cluster.declared import DeclaredResource
from everspot_core.counting import first_few

from everspot_review.event_log import EventLog, LoggedStep, declared
from everspot_review.jobs import GOES, deed
from everspot_review.markdown.money import expected
from everspot_review.report import Diagnostic

_NAMED_AT_MOST = 5


def list_unmanaged(log: EventLog, kinds: ResourceKinds) -> tuple[DeclaredResource, ...]:
    """Return the resources that stay in the cloud without a stack, and what their price depends on: providers and
    launch templates that the change deletes."""
    unmanaged = [declared(step, step.old) for step in log.steps if step.old is not None and _stays(step, kinds)]
    if not unmanaged:
        return ()
    return (
        *unmanaged,
        *(
            declared(step, step.old)
            for step in log.steps
            if step.old is not None
            and step.new is None
            and not _stays(step, kinds)
            and (step.type in kinds.templates or step.type.startswith("pulumi:providers:"))
        ),
    )


def _stays(step: LoggedStep, kinds: ResourceKinds) -> bool:
    """Return whether a resource leaves the state, and it or its instances stay."""
    if deed(step) not in GOES or step.old is None or step.grouping:
        return False
    fleet = kinds.fleets.get(step.type)
    return step.old.retained or (fleet is not None and not fleet.delete_ends(step.old.inputs))


def describe_unmanaged(resources: Sequence[DeclaredResource]) -> list[Diagnostic]:
    """Return a warning about the resources that `list_unmanaged` lists, if any of them costs money."""
    figures = estimated(None, resources).after
    names = sorted({*(part.name for part in figures.parts), *figures.unpriced}) if figures is not None else []
    if not names:
        return []
    cost = (
        "what they cost is not known"
        if figures is None or figures.nothing_known
        else (f"{expected(figures)} of the month after this change")
    )
    text = (
        f"{first_few(names, _NAMED_AT_MOST)}: only taken out of the state, not out of the cloud. There they are billed "
        f"until somebody deletes them: {cost}."
    )
    return [Diagnostic(severity="warning", text=text)]
