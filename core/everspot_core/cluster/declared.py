"""A resource as a preview declares it: its URN, its type, and its inputs as the engine's event log spells them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""The event log's marker of a value that only the update will know (pulumi/pkg, resource/stack/deployment.go,
`computedValuePlaceholder`)."""

SECRET = "[secret]"  # noqa: S105 - what stands for one
"""The event log's marker of a secret's text (pulumi/sdk, resource/config/crypt.go, `BlindingCrypter`)."""

_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - pulumi/sdk, resource/sig/sig.go


@dataclass(frozen=True)
class DeclaredResource:
    """One resource.

    Attributes:
        inputs: In camelCase, with the engine's markers for secret and unknown values.
        provider: The URN of its provider; empty if unknown, and for components, which have none.
        parent: The URN of the resource that it is a part of; empty if unknown.
    """

    urn: str
    type: str
    inputs: Mapping[str, Any]
    provider: str = ""
    parent: str = ""

    @property
    def stack(self) -> str:
        """Name of its stack."""
        return self._parts[0]

    @property
    def project(self) -> str:
        """Name of its project."""
        return self._parts[1]

    @property
    def parent_types(self) -> tuple[str, ...]:
        """Types of the components that it is a part of, outermost first."""
        return tuple(self._parts[2].split("$")[:-1])

    @property
    def name(self) -> str:
        """Its name within the program. It may have any character, even the URN's own separator."""
        return self._parts[3]

    @property
    def _parts(self) -> list[str]:
        parts = self.urn.removeprefix("urn:pulumi:").split("::", 3)
        if len(parts) != 4:
            raise ValueError(f"{self.urn!r} is no URN, such as urn:pulumi:STACK::PROJECT::TYPE::NAME")
        return parts


def unknown(value: Any) -> bool:
    """Return whether a value itself is one that only the update will know. A list or mapping may hold such values and
    still be known: see `known_whole`."""
    return isinstance(value, str) and value == UNKNOWN


def secret(value: Any) -> bool:
    """Return whether a value itself is a secret. The event log does not have the text of a secret."""
    if isinstance(value, Mapping):
        return value.get(_SIGNATURE) == _SECRET_SIGNATURE
    return isinstance(value, str) and value == SECRET


def is_fully_known(value: Any) -> bool:
    """Return whether a value is known at every depth: nothing in it is secret or unknown."""
    if unknown(value) or secret(value):
        return False
    if isinstance(value, Mapping):
        return all(is_fully_known(each) for each in value.values())
    return all(is_fully_known(each) for each in value) if isinstance(value, list | tuple) else True
