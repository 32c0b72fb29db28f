"""What is asked of a cloud, and the plain values in which every cloud answers. It decides nothing.

Of the standard library alone, as the metadata readers are: an instance that boots has to know what it is, and whether
it is about to be taken, before anything heavier is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from everspot_core.billing import BillingRules
    from everspot_core.catalogue import Catalogue
    from everspot_core.clock import Clock
    from everspot_core.ledger import PricePoint
    from everspot_core.manifest import Manifest
    from everspot_core.market import Market
    from everspot_core.notify import Notifications
    from everspot_core.price_table import PriceTable
    from everspot_core.records import Role
    from everspot_store import Store


class MetadataError(Exception):
    """The metadata service answered, but not with what an instance of Everspot needs."""


class MetadataUnavailable(MetadataError):
    """The metadata service did not answer, or with an error of its own, for as often as was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What differs between the instances of a cluster. `zone` is a zone's name, such as us-east-1a."""

    instance_id: str
    instance_type: str
    zone: str
    market: Market


class Metadata(Protocol):
    """One cloud's metadata service, seen from an instance. Every method raises `MetadataUnavailable` while it is not
    to be had, and `MetadataError` if it answers what cannot be understood."""

    @property
    def where(self) -> str:
        """Where the manifest lies, in the cloud's own words."""
        ...

    def manifest(self) -> str:
        """The manifest that the infrastructure handed to this instance, as a text. Raises `MetadataError` if there is
        none."""
        ...

    def identity(self) -> Identity:
        """Who this instance is."""
        ...

    def interruption(self) -> datetime | None:
        """When this instance will be taken away, market time; None while nothing is said."""
        ...

    def rebalance(self) -> datetime | None:
        """When it was recommended to be ready for that, market time; None while it is not."""
        ...


class Trouble(StrEnum):
    """Failures by what can be done about them."""

    THROTTLED = "throttled"  # ask less often
    CAPACITY = "capacity"  # the pool has none: try another
    QUOTA = "quota"  # the account may have no more: try another family, tell a person
    CREDENTIALS = "credentials"  # a person must act
    REQUEST = "request"  # we asked for something wrong: a bug or a wrong setting
    TRANSIENT = "transient"  # try again


class Phase(StrEnum):
    """Where an instance stands in its life. ENDING still runs, and nothing can keep it."""

    ALIVE = "alive"
    ENDING = "ending"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudInstance:
    """An instance of the cluster as its cloud describes it. Times are market time, as the API states them.

    `image`: of the machine, as the cloud names it. `ended_at`: when it ceased to cost money, if the API states it.
    `interrupted`: whether the cloud took it; None while the API does not say who ended it. `launch`: the token of the
    launch intent that brought it; empty for an instance of the standing fleets.
    """

    instance_id: str
    instance_type: str
    zone: str
    market: Market
    role: Role
    launched_at: datetime
    image: str = ""
    phase: Phase = Phase.ALIVE
    ended_at: datetime | None = None
    interrupted: bool | None = None
    launch: str = ""


class MessageKind(StrEnum):
    """What a message of the cloud means to a scheduler."""

    WARNING = "warning"  # the instance will be taken, `deadline`
    REBALANCE = "rebalance"
    LAUNCHED = "launched"  # pending or running
    ENDING = "ending"
    ENDED = "ended"
    CAPACITY = "capacity"  # a fleet could not launch something; for the log
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of the cloud, parsed. `handle` is what deletes it; a redelivery brings a new one."""

    kind: MessageKind
    handle: str
    at: datetime | None = None
    instance_id: str = ""
    deadline: datetime | None = None
    text: str = ""


class Cloud(Protocol):
    """A cloud seen by one cluster's scheduler. Errors are the cloud's own; `trouble` sorts them."""

    def instances(self) -> list[CloudInstance]:
        """Every instance of the cluster that the cloud still describes, the scheduler's own included."""
        ...

    def messages(self) -> list[Message]:
        """Messages that arrived since the last call, without waiting."""
        ...

    def acknowledge(self, messages: Iterable[Message]) -> None:
        """Delete these messages: what they mean has been written down, and they must not be delivered again."""
        ...

    def spot_prices(self, pools: Iterable[tuple[str, str]], since: datetime) -> list[PricePoint]:
        """What spot cost in these pools (type, zone): the price in force at `since`, and every change after it."""
        ...

    def notify(self, settings: Notifications, subject: str, text: str, data: dict[str, Any]) -> None:
        """Send a notification where the settings say. Called by a thread of its own."""
        ...

    def trouble(self, error: Exception) -> Trouble:
        """What kind of failure this is."""
        ...

    def close(self) -> None:
        """Stop listening and let go of connections. Idempotent."""
        ...


class Verdict(StrEnum):
    """How a check ended. SKIP: it could not be asked here."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class Check:
    """One check. `group`: whose matter it is: store, credentials, cluster, capacity, quota, clock or user."""

    group: str
    name: str
    verdict: Verdict
    detail: str
    fix: str = ""

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """A program of the cloud's own that takes over from here. `needs`: programs that have to be installed, and what
    people call them; `install`: how; `denied`: what may be wrong when it fails."""

    command: tuple[str, ...]
    needs: tuple[tuple[str, str], ...]
    install: str
    denied: str


class Door(Protocol):
    """The way into instances, for a person."""

    def enter(self, instance_id: str, command: str) -> Handover:
        """Run a command line on an instance, in a terminal."""
        ...

    def forward(self, instance_id: str, port: int, local: int) -> Handover:
        """Make a port of an instance one of this machine."""
        ...


class CloudError(Exception):
    """What a person is to be told of a cloud's refusal. `fix`: what to do about it."""

    def __init__(self, message: str, trouble: Trouble, fix: str = "") -> None:
        super().__init__(message)
        self.trouble, self.fix = trouble, fix


class NotOffered(CloudError):
    """A cloud that has no such thing."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Trouble.REQUEST)


class Provider(Protocol):
    """All that there is of one cloud. Its module imports nothing that is not everywhere; its methods do."""

    def metadata(self, clock: Clock, getenv: Callable[[str], str | None]) -> Metadata:
        """The metadata service of the instance that asks. `getenv`: its environment."""
        ...

    def scheduling(self, manifest: Manifest, store: Store) -> Cloud:
        """The cloud for a cluster's scheduler: it listens to the manifest's queue if that names one."""
        ...

    def reading(self, manifest: Manifest, clock: Clock) -> Cloud | None:
        """The cloud for a reader of the ledger, who changes and takes nothing; None where the cloud knows no more of
        its instances than they say themselves."""
        ...

    def errors(self) -> tuple[type[Exception], ...]:
        """What calls to this cloud may raise, besides `OSError`. Raises `ImportError` if its client is not there."""
        ...

    @property
    def billing(self) -> BillingRules:
        """By what rules it bills."""
        ...

    @property
    def by_hand(self) -> bool:
        """Whether instances are started by hand, so that what lives is all that there is."""
        ...

    def checks(self, region: str | None, manifest: Manifest | None, catalogue: Catalogue, clock: Clock) -> list[Check]:
        """What `everspot doctor` asks of the cloud, credentials first. `manifest` None: it cannot be read."""
        ...

    def price_table(self, region: str, types: Iterable[str], as_of: datetime, page: Callable[[], None]) -> PriceTable:
        """What types cost in a region now, by the cloud's own price lists. `page` is called after each page.

        Raises:
            CloudError: if it cannot be had.
        """
        ...

    def credentials(self, url: str, profile: str | None) -> Callable[[], dict[str, Any]] | None:
        """Whose credentials a person's tools take for a store, as `Store.open` wants them; None where the store knows
        better by itself. A `profile` is used for all else that this process asks of the cloud, too.

        Raises:
            CloudError: if there are none.
        """
        ...

    def secrets(self, region: str) -> Callable[[str], str]:
        """What reads a job's secret by its reference, on an instance and with its role. It raises `CloudError` if the
        secret cannot be had, with a message that tells no value."""
        ...

    def door(self, manifest: Manifest) -> Door:
        """The way into a cluster's instances.

        Raises:
            NotOffered: if there is none.
        """
        ...
