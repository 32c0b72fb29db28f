"""The status documents of schedulers: waiting reasons, usage and spending of teams, pools, measured changeovers,
anomalies."""

from typing import Generic, TypeVar

from everspot_core.capacity.market import Market
from everspot_core.documents import Document, Stored, Utc
from everspot_core.governance.anomalies import Anomalies, DailySpending
from everspot_core.jobs.changeover import Changeovers
from pydantic import Field

from everspot_store.bucket import Bucket
from everspot_store.fleet_state import FleetState, PeerMarket
from everspot_store.table import Table

D = TypeVar("D", bound=Document)


class WaitPool(Stored):
    """A pool that a job waits for."""

    instance_type: str
    zone: str
    market: Market


class Wait(Stored):
    """The reason why one job waits."""

    why: str = Field(description="The code of the reason: a value of `everspot_core.schedule.Why`.")
    words: str = Field(description="The reason as a sentence, with the figures at that time.")
    since: Utc = Field(description="Since when the job waits for this reason; the figures may be newer.")
    withheld_seconds: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="Market time in which the job might not run, for earlier reasons of this wait.",
    )
    waits_for: WaitPool | None = Field(
        default=None, description="The pool that would suit it best, or that launches an instance for it."
    )
    on_demand_at: Utc | None = Field(
        default=None, description="The latest time at which on-demand capacity is launched for it; None: never."
    )


class Waiting(Document):
    """Why jobs wait, written by a scheduler when a reason changes. A job that no longer waits may still be named."""

    scheduler_id: str
    updated_at: Utc
    jobs: dict[str, Wait] = Field(default_factory=dict)


class TeamUsage(Document):
    """The recent spending of each team up to `at`, USD, with less weight for older spending. It is no bill."""

    at: Utc
    dollars: dict[str, float] = Field(default_factory=dict)


class SingleDocument(Generic[D]):
    """One document that is read and replaced as a whole. Both methods raise the store's errors."""

    def __init__(self, bucket: Bucket, prefix: str, name: str, model: type[D]) -> None:
        self._table, self._name = Table(bucket, prefix, model), name

    def read(self) -> D | None:
        """Return the document, or None if it was never written.

        Raises:
            BadDocument: if it cannot be read.
        """
        document = self._table.get(self._name)
        return None if document is None else document.value

    def write(self, value: D) -> None:
        """Replace the document."""
        self._table.put(self._name, value)


class StatusDocuments:
    """The status documents of a cluster's schedulers: one document each, at the root of the control bucket or in its
    ledger.

    If several schedulers write, the last one wins; all of them see the same cluster.

    Attributes:
        waiting: Why jobs wait.
        usage: The recent spending of teams.
        fleet: The state of the pools.
        changeovers: Measured durations of changeovers.
        anomalies: Unusual spending or behavior. None until a scheduler first finds some.
        spending: The spending of teams by day.
        peers: The published pools of each peer, by name.
    """

    def __init__(self, control: Bucket) -> None:
        self.waiting = SingleDocument(control, "", "waiting", Waiting)
        self.usage = SingleDocument(control, "", "usage", TeamUsage)
        self.fleet = SingleDocument(control, "", "pools", FleetState)
        self.changeovers = SingleDocument(control, "ledger", "changeovers", Changeovers)
        self.anomalies = SingleDocument(control, "ledger", "anomalies", Anomalies)
        self.spending = SingleDocument(control, "ledger", "spending", DailySpending)
        self.peers = Table(control, "ledger/peers", PeerMarket)
