"""The metadata service that an instance asks: its identity, its manifest, and whether it will be interrupted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from everspot_core.capacity.market import Market


class MetadataError(Exception):
    """The metadata service answered without something that an instance needs, or with something unreadable."""


class MetadataUnavailable(MetadataError):
    """The metadata service did not answer, or answered with errors, at every attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The facts that differ between the instances of a cluster. `zone` is a zone's name, such as us-east-1a."""

    instance_id: str
    instance_type: str
    zone: str
    market: Market


class Metadata(Protocol):
    """One cloud's metadata service, seen from an instance. Every method raises `MetadataUnavailable` while the service
    does not answer, and `MetadataError` if its answer cannot be understood."""

    @property
    def where(self) -> str:
        """The place of the manifest, in the cloud's terms."""
        ...

    def manifest(self) -> str:
        """Return the manifest that the infrastructure gave to this instance, as text. Raises `MetadataError` if the
        instance has no manifest."""
        ...

    def identity(self) -> Identity:
        """Return the identity of this instance."""
        ...

    def interruption(self) -> datetime | None:
        """Return when this instance will be taken away, market time; None while no interruption is announced."""
        ...

    def rebalance(self) -> datetime | None:
        """Return when the cloud recommended a rebalance, market time; None while it has not."""
        ...

    def end(self) -> bool:
        """Have the cloud delete this instance, with the instance's own credentials. False: nothing was requested,
        because the cloud does so by itself once the machine is switched off."""
        ...
