"""The protocols that every cloud implements, and the plain values in which it answers. Nothing is decided here.

This module and the metadata readers use only the standard library, so that a booting instance learns its identity, and
whether it is about to be interrupted, before it loads anything heavier.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from everspot_core.billing import BillingRules
    from everspot_core.catalogue import Catalogue
    from everspot_core.clock import Clock
    from everspot_core.gauges import Gauge
    from everspot_core.launching import LaunchError, LaunchIntent
    from everspot_core.ledger import PricePoint
    from everspot_core.manifest import Manifest
    from everspot_core.market import Market
    from everspot_core.notify import Notifications
    from everspot_core.price_table import PriceTable
    from everspot_core.records import Role
    from everspot_store import Store


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


class Trouble(StrEnum):
    """Kinds of failure, by what can be done about them."""

    THROTTLED = "throttled"  # ask less often
    CAPACITY = "capacity"  # the pool has none: try another
    QUOTA = "quota"  # the account may have no more: try another family, tell a person
    CREDENTIALS = "credentials"  # a person must act
    REQUEST = "request"  # we asked for something wrong: a bug or a wrong setting
    TRANSIENT = "transient"  # try again


class Phase(StrEnum):
    """The stage of an instance's life. An instance that is ENDING still runs, and its end cannot be stopped."""

    ALIVE = "alive"
    ENDING = "ending"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudInstance:
    """An instance of the cluster as its cloud describes it. Times are market time, as the API states them.

    `image`: the cloud's name of its image. `ended_at`: when it stopped costing money, if the API states it.
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
    """Kinds of messages from the cloud to a scheduler."""

    WARNING = "warning"  # the instance will be taken, `deadline`
    REBALANCE = "rebalance"
    LAUNCHED = "launched"  # pending or running
    ENDING = "ending"
    ENDED = "ended"
    CAPACITY = "capacity"  # a fleet could not launch something; for the log
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A parsed message of the cloud. `handle` is used to delete it; each delivery has a new one."""

    kind: MessageKind
    handle: str
    at: datetime | None = None
    instance_id: str = ""
    deadline: datetime | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementScore:
    """How likely a cloud found it, at `at` (market time), that `count` spot instances of any of these types could be
    had at once: from 1, hardly, to 10, very. `zone` is a zone's name; empty for a region as a whole."""

    types: tuple[str, ...]
    region: str
    zone: str
    count: int
    score: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """An instance that a launch has brought."""

    instance_id: str
    instance_type: str
    zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAnswer:
    """What a cloud said to a launch: what it brought, which may be less than was asked for, and what it refused."""

    instances: tuple[Launched, ...] = ()
    errors: tuple[LaunchError, ...] = ()


class Cloud(Protocol):
    """A cloud, seen from one cluster's scheduler. Its methods raise the cloud's own errors, which `trouble`
    classifies."""

    def instances(self) -> list[CloudInstance]:
        """Every instance of the cluster that the cloud still describes, the scheduler's own included."""
        ...

    def messages(self) -> list[Message]:
        """Messages that arrived since the last call, without waiting."""
        ...

    def acknowledge(self, messages: Iterable[Message]) -> None:
        """Delete these messages, whose meaning is recorded, so that they are not delivered again."""
        ...

    def spot_prices(self, pools: Iterable[tuple[str, str]], since: datetime) -> list[PricePoint]:
        """Spot prices of these pools (type, zone): the price in force at `since`, and every change after it."""
        ...

    def placement_scores(
        self, types: Collection[str], count: int, regions: Collection[str] = ()
    ) -> list[PlacementScore]:
        """How likely it is that `count` spot instances of any of these types can be had in each zone of the cluster's
        region; with `regions`, in each of those. May be asked often: what is not to be asked again yet is remembered.
        Empty where the cloud gives no scores, or not for so few types."""
        ...

    def launch(self, intent: LaunchIntent) -> LaunchAnswer:
        """Launch what the intent asks for, tagged with its token. Asking again by the same intent launches nothing
        more and answers the same.

        What is refused for good is part of the answer. Whatever is raised may have been carried out all the same, or
        may be by and by: the same has to be asked again.
        """
        ...

    def terminate(self, instances: Iterable[str]) -> None:
        """End these instances. Those that the cloud does not know, or that have ended, are left out; one that cannot
        be ended keeps no other one alive, and is raised in the end."""
        ...

    def quota_of(self, instance_type: str, market: Market) -> str:
        """The name of the quota that an instance counts towards: what has the same one is refused together."""
        ...

    def keep_gauges(self, namespace: str, gauges: Mapping[Gauge, float], at: datetime) -> None:
        """Keep these figures of the cluster, as of a moment, for alarms and dashboards. Called by a thread of its
        own."""
        ...

    def notify(self, settings: Notifications, subject: str, text: str, data: dict[str, Any]) -> None:
        """Send a notification to where the settings say. It is called in a thread of its own."""
        ...

    def trouble(self, error: Exception) -> Trouble:
        """What kind of failure this is."""
        ...

    def close(self) -> None:
        """Stop listening and close connections. Idempotent."""
        ...


class Verdict(StrEnum):
    """How a check ended. SKIP: it could not be made here."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class Check:
    """One check. `group`: what it is about: store, credentials, cluster, capacity, quota, clock or user."""

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
    """A program of the cloud that replaces this process. `needs`: programs that have to be installed, and what people
    call them; `install`: how to install them; `denied`: what may be wrong when it fails."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Something of a cluster that its cloud still has. `kind` and `detail` are for people.

    `launched`: an instance that a scheduler launched. `ending`: it goes by itself, or with what it belongs to. `kept`:
    it stays on purpose, such as a bucket with checkpoints.
    """

    kind: str
    name: str
    detail: str = ""
    launched: bool = False
    ending: bool = False
    kept: bool = False


class Site(Protocol):
    """What a cluster has in its cloud, for whoever takes it down. Both methods raise `CloudError`."""

    def left(self) -> list[Left]:
        """Everything that costs money, found by the cluster's name and not by what anybody remembers."""
        ...

    def end(self, instances: Iterable[str]) -> None:
        """Terminate instances of the cluster now, with the credentials of whoever asks."""
        ...


class CloudError(Exception):
    """A cloud's refusal in words for people. `fix`: what to do about it."""

    def __init__(self, message: str, trouble: Trouble, fix: str = "") -> None:
        super().__init__(message)
        self.trouble, self.fix = trouble, fix


class NotOffered(CloudError):
    """The cloud does not offer this."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Trouble.REQUEST)


class Provider(Protocol):
    """The adapter to one cloud. Its module imports only what is installed everywhere; its methods import the cloud's
    clients."""

    def metadata(self, clock: Clock, getenv: Callable[[str], str | None]) -> Metadata:
        """The metadata service of the instance that asks. `getenv`: its environment."""
        ...

    def scheduling(self, manifest: Manifest, store: Store) -> Cloud:
        """The cloud for a cluster's scheduler: it listens to the manifest's queue if that names one."""
        ...

    def reading(self, manifest: Manifest, clock: Clock) -> Cloud | None:
        """The cloud for a reader of the ledger, which changes nothing and takes no messages. None if the cloud knows
        nothing about instances beyond their own reports."""
        ...

    def errors(self) -> tuple[type[Exception], ...]:
        """Errors that calls to this cloud may raise, besides `OSError`. Raises `ImportError` if its client is not
        installed."""
        ...

    @property
    def billing(self) -> BillingRules:
        """The cloud's billing rules."""
        ...

    @property
    def by_hand(self) -> bool:
        """Whether people start the instances by hand. The running ones are then all the capacity that there is."""
        ...

    def checks(self, region: str | None, manifest: Manifest | None, catalogue: Catalogue, clock: Clock) -> list[Check]:
        """The checks of `everspot doctor` that ask the cloud, credentials first. `manifest` None: it cannot be read."""
        ...

    def price_table(self, region: str, types: Iterable[str], as_of: datetime, page: Callable[[], None]) -> PriceTable:
        """Prices of types in a region now, by the cloud's own price lists. `page` is called after each page.

        Raises:
            CloudError: if it cannot be had.
        """
        ...

    def credentials(self, url: str, profile: str | None) -> Callable[[], dict[str, Any]] | None:
        """Credentials of a person's tools for a store, in the form that `Store.open` takes; None if the store finds
        them by itself. A `profile` is also used for all other calls of this process to the cloud.

        Raises:
            CloudError: if there are none.
        """
        ...

    def secrets(self, region: str) -> Callable[[str], str]:
        """A function that reads a job's secret by its reference, with the instance's role. It raises `CloudError` if
        the secret cannot be read; the message contains no value."""
        ...

    def site(self, manifest: Manifest) -> Site:
        """What a cluster has in the cloud.

        Raises:
            NotOffered: if the cloud has no instances of its own.
        """
        ...

    def door(self, manifest: Manifest) -> Door:
        """The way into a cluster's instances.

        Raises:
            NotOffered: if there is none.
        """
        ...
