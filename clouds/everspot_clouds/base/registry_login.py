"""Access to a registry of images."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class RegistryLogin:
    """Access to a registry.

    Attributes:
        url: of the registry, without a slash at its end.
        authorization: the value of the header Authorization. It appears in no text of the object.
        headers: further headers.
        fix: how a user gets a refused image allowed.
    """

    url: str
    authorization: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    fix: str = ""
