"""What was added to a stack's resources by hand. `pulumi refresh` asks each resource for what it declares; what hangs
on it as something of its own, and is in no state, it never sees."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from everspot_core.deployment import resources


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
        """The resources of an exported stack that exist in a cloud and are this stack's own to manage."""
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
        """A property, as the cloud gave it, or else as it was declared."""
        output = self.outputs.get(name)
        return self.inputs.get(name) if output is None else output


@dataclass(frozen=True)
class AddedByHand:
    """Something that is there and that no resource of the stack declares. `urn`: of the resource that it hangs on;
    `kind`: what it is, for people; `detail`: which, in the cloud's own words; `key`: its identity at the cloud."""

    urn: str
    kind: str
    detail: str
    key: str


def of_type(resources: Iterable[KeptResource], *types: str) -> list[KeptResource]:
    """Those of the given types."""
    return [resource for resource in resources if resource.type in types]
