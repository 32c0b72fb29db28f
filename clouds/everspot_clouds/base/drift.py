"""Manual additions to a stack's resources. `pulumi refresh` asks each resource for its declared properties. It never
sees separate things that are attached to a resource and in no state."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from everspot_core.cluster.deployment import resources


@dataclass(frozen=True)
class KeptResource:
    """A resource as a stack's state keeps it. `id`: the cloud's; secrets in its values are the engine's ciphertext."""

    urn: str
    type: str
    id: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> "list[KeptResource]":
        """Return the resources of an exported stack that exist in a cloud and are this stack's own to manage."""
        return [
            cls(
                item["urn"],
                item["type"],
                str(item.get("id") or ""),
                item.get("inputs") or {},
                item.get("outputs") or {},
            )
            for item in resources(state)
            if item.get("custom") and not item.get("external") and not item.get("delete") and item.get("id")
        ]

    def value(self, name: str) -> Any:
        """Return a property as the cloud gave it, otherwise as it was declared."""
        output = self.outputs.get(name)
        return self.inputs.get(name) if output is None else output


@dataclass(frozen=True)
class AddedByHand:
    """A thing that exists and that no resource of the stack declares.

    Attributes:
        urn: of the resource that it is attached to.
        kind: its kind, for people.
        detail: its description in the cloud's own words.
        key: its identity at the cloud.
    """

    urn: str
    kind: str
    detail: str
    key: str


def of_type(resources: Iterable[KeptResource], *types: str) -> list[KeptResource]:
    """Return those of the given types."""
    return [resource for resource in resources if resource.type in types]
