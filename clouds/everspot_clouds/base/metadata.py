"""What an instance asks of its cloud: who it is, its manifest, and whether it is about to be taken away."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from everspot_core.market import Market


class MetadataError(Exception):
    """The metadata service answered without something that an instance needs, or with something unreadable."""


class MetadataUnavailable(MetadataError):
    """The metadata service did not answer, or answered with errors, at every attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What differs between the instances of a cluster. `zone` is a zone's name, such as us-east-1a."""

    instance_id: str
    instance_type: str
    zone: str
    market: Market


class Metadata(Protocol):
    """One cloud's metadata service, seen from an instance. Every method raises `MetadataUnavailable` while the service
    does not answer, and `MetadataError` if its answer cannot be understood."""

    @property
    def where(self) -> str:
        """Where the manifest is, in the cloud's own words."""
        ...

    def manifest(self) -> str:
        """The manifest that the infrastructure handed to this instance, as a text. Raises `MetadataError` if there is
        none."""
        ...

    def identity(self) -> Identity:
        """Who this instance is."""
        ...

    def interruption(self) -> datetime | None:
        """When this instance will be taken away, market time; None while no interruption is announced."""
        ...

    def rebalance(self) -> datetime | None:
        """When the cloud recommended a rebalance, market time; None while it has not."""
        ...

    def end(self) -> bool:
        """Have the cloud end this instance for good, with its own credentials. False where the cloud does so by itself
        once the machine is switched off, and nothing was asked for."""
        ...
