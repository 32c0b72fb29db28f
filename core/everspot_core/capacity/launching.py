"""Launch intents: a launch, stored before the scheduler asks the cloud, and later with its outcome.

An intent holds the whole request. So a scheduler that repeats it after a lost answer asks for exactly the same under
the same token, whatever is declared by then. docs/internals/scheduler.md describes how schedulers use it.
"""

import hashlib
from collections.abc import Iterable
from enum import StrEnum

from pydantic import Field

from everspot_core.capacity.market import Market
from everspot_core.documents import Document, Stored, Utc

MARK = 8
"""Hexadecimal digits with which the tokens of a cluster's launches begin."""


def store_mark(control_url: str) -> str:
    """Return how the tokens of a cluster's launches begin, which tells its instances from those of another cluster of
    the same name. `control_url`: of its store."""
    return hashlib.sha256(control_url.partition("?")[0].encode()).hexdigest()[:MARK]


def has_mark(control_url: str, *, store: str = "", launch: str = "") -> bool | None:
    """Return whether a resource with the cluster's name bears the mark of this cluster's store. None: it bears no mark,
    or the store is not known.

    Args:
        control_url: Of the cluster's store; empty if it is not known.
        store: The mark in the resource's tag or label; empty without one.
        launch: The token of the launch that made the resource; empty without one.
    """
    mark = store or launch[:MARK]
    return mark == store_mark(control_url) if mark and control_url else None


class LaunchTrouble(StrEnum):
    """Kinds of refusals of a pool or of a whole request, by the possible reactions to them."""

    CAPACITY = "capacity"  # the pool has none now: another pool, and this one again later
    QUOTA = "quota"  # the account's quota of the family is used up, until the quota is raised
    PRICE = "price"  # it costs more than the most that is paid for it
    REQUEST = "request"  # asked for wrongly, by a setting or the template: never asked for again like this
    THROTTLED = "throttled"  # asked too often: later, and slower
    CREDENTIALS = "credentials"  # a person must act
    TRANSIENT = "transient"  # the cloud's own trouble: later

    @property
    def for_good(self) -> bool:
        """Whether the same request would be refused whenever it is made."""
        return self is LaunchTrouble.REQUEST


class LaunchPool(Stored):
    """A pool that may serve a launch.

    Attributes:
        place: the cloud's name for the place in the zone (a subnet).
        max_price: the highest price of an instance, dollars an hour; None for the cloud's own limit.
    """

    instance_type: str
    zone: str
    market: Market
    place: str
    max_price: float | None = None


class LaunchedInstance(Stored):
    """An instance of a launch, and the job that it was launched for."""

    instance_id: str
    instance_type: str
    zone: str
    market: Market
    job_id: str
    node: str = Field(default="", description="Of a pod: the machine that it is on.")
    node_share: float = Field(default=1.0, gt=0, le=1, description="The part of its machine that is billed.")


class LaunchError(Stored):
    """One refusal. An empty zone stands for the whole region, an empty type for every type."""

    instance_type: str = ""
    zone: str = ""
    market: Market
    kind: LaunchTrouble
    code: str = Field(description="As the cloud has it.")
    message: str = ""
    unresolved: bool = Field(
        default=False,
        description="The request names a resource that the cloud does not know: one that was just created may not be "
        "known everywhere yet.",
    )


class LaunchOutcome(Stored):
    """The outcome of a launch. It never changes once it is written."""

    instances: tuple[LaunchedInstance, ...] = ()
    errors: tuple[LaunchError, ...] = ()
    settled_at: Utc


class LaunchIntent(Document):
    """A launch, written once before the cloud is asked, and once more with its outcome.

    `seq` counts the launches of a cluster. So two schedulers that launch for the same need write the same key, and only
    one of them goes on.
    """

    seq: int = Field(ge=1)
    token: str = Field(
        pattern=r"^[0-9a-f]{32}$",
        description="Random, but for the mark of the cluster's store with which it begins. The request's idempotency "
        "token, and the value of the tag of what it brings.",
    )
    jobs: tuple[str, ...] = Field(description="One for each instance wanted; a gang's job once for each node.")
    pools: tuple[LaunchPool, ...] = Field(description="Best first; all of one market.")
    ordered: bool = Field(description="The order of the pools counts; else the cloud picks by price and capacity.")
    whole: bool = Field(description="All of the instances or none, in one zone and of one type.")
    template: str = Field(description="What the instances are launched from, as the cloud names it.")
    template_version: str
    tags: dict[str, str] = Field(default_factory=dict, description="Of the instances, beside those that find them.")
    usd_per_hour: float = Field(description="What it may cost at the most while all of it runs.")
    made_at: Utc
    scheduler_id: str
    outcome: LaunchOutcome | None = Field(default=None, description="None: it is not known yet.")

    @property
    def count(self) -> int:
        """How many instances are wanted."""
        return len(self.jobs)

    @property
    def name(self) -> str:
        """Its id in the table."""
        return f"{self.seq:08d}"

    @property
    def market(self) -> Market:
        """The market of all of its pools."""
        return self.pools[0].market

    def settled(self, outcome: LaunchOutcome) -> "LaunchIntent":
        """Return the intent with its outcome."""
        return self.model_copy(update={"outcome": outcome})


def place_jobs(intent: LaunchIntent, instance_ids: tuple[str, ...]) -> dict[str, str]:
    """Return the job of each of these instances of the launch.

    Jobs are given to instances in the order of names, so that every scheduler that finds the same instances comes to
    the same result. If there are more instances than the intent asked for, the last job has the rest.
    """
    return {name: intent.jobs[min(n, intent.count - 1)] for n, name in enumerate(sorted(instance_ids))}


def launched_ids(intents: Iterable[LaunchIntent]) -> set[str]:
    """Return the ids of all launched instances whose intent has an outcome."""
    outcomes = (intent.outcome for intent in intents if intent.outcome is not None)
    return {instance.instance_id for outcome in outcomes for instance in outcome.instances}
