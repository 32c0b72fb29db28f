"""The exported state of a stack of the engine: its resources, its pending operations, the stack's own outputs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from everspot_core.counting import counted, first_few

CONTROL = "controlUrl"
"""The output of a stack with the URL of its cluster's control bucket."""

_STACK = "pulumi:pulumi:Stack"
_NAMED_AT_MOST = 8


@dataclass(frozen=True)
class PendingOperation:
    """An operation that an update began and whose end is not in the state: the update was killed, or it still runs.

    Attributes:
        urn: Of the resource.
        type: The resource's type.
        operation: The engine's word for it, such as `creating`.
    """

    urn: str
    type: str
    operation: str

    @property
    def name(self) -> str:
        """The resource's name within the program."""
        return self.urn.rpartition("::")[2]


def resources(state: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the resources of an exported stack, in the state's order; secrets in them are the engine's ciphertext."""
    deployment = state.get("deployment")
    items = deployment.get("resources") if isinstance(deployment, Mapping) else None
    return tuple(item for item in items or () if isinstance(item, Mapping))


def control_url(state: Mapping[str, Any]) -> str:
    """Return the URL of the cluster's control bucket; empty if the stack has no cluster, or keeps the URL as a
    secret."""
    for resource in resources(state):
        if resource.get("type") == _STACK:
            url = (resource.get("outputs") or {}).get(CONTROL)
            return url if isinstance(url, str) else ""
    return ""


def pending_operations(state: Mapping[str, Any]) -> tuple[PendingOperation, ...]:
    """Return the pending operations of an exported stack (pulumi/sdk, apitype/core.go, `PendingOperations`).

    Of an interrupted creation the cloud may have the resource and the state does not, so the next update makes another
    one. The engine only warns of that, and keeps the entry until a refresh clears it.
    """
    return tuple(
        PendingOperation(str(resource.get("urn") or ""), str(resource.get("type") or ""), str(entry.get("type") or ""))
        for entry, resource in _pending(state)
    )


def pending_resources(state: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the resources of an exported stack's pending operations, in the form of `resources`."""
    return tuple(resource for _, resource in _pending(state))


def _pending(state: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    deployment = state.get("deployment")
    entries = deployment.get("pending_operations") if isinstance(deployment, Mapping) else None
    for entry in entries or ():
        resource = entry.get("resource") if isinstance(entry, Mapping) else None
        if isinstance(resource, Mapping):
            yield entry, resource


def describe_pending(operations: Sequence[PendingOperation]) -> str:
    """Return one sentence that names interrupted operations; empty without any."""
    if not operations:
        return ""
    names = first_few([f"{operation.name} ({operation.operation})" for operation in operations], _NAMED_AT_MOST)
    return f"an update was interrupted, or still runs: {counted(len(operations), 'operation')} pending: {names}"


def resolve_pending(stack: str | None) -> str:
    """Return the instruction that resolves the pending operations of a stack. `stack` None: the selected stack."""
    option = f" --stack {stack}" if stack else ""
    return (
        "if no update runs now, delete in the cloud what it left there, and then clear them: "
        f"pulumi refresh --yes --clear-pending-creates{option}"
    )
