"""The status documents of schedulers: why each job waits, the use and spending of teams, the pools, measured
changeovers, anomalies."""

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
    """Why one job waits, as the scheduler found it."""

    why: str = Field(description="The code of the reason: a value of `everspot_core.schedule.Why`.")
    words: str = Field(description="For people, with the figures of the moment at which it was found.")
    since: Utc = Field(description="When the scheduler found this reason; its figures may be newer.")
    waits_for: WaitPool | None = Field(
        default=None, description="The pool that would suit it best, or from which an instance comes."
    )
    on_demand_at: Utc | None = Field(
        default=None, description="When on-demand is launched for it at the latest; None: no such moment."
    )


class Waiting(Document):
    """Why jobs wait, written by a scheduler when a reason changes. A job that no longer waits may still be named."""

    scheduler_id: str
    updated_at: Utc
    jobs: dict[str, Wait] = Field(default_factory=dict)


class TeamUsage(Document):
    """The dollars that each team has used lately, as a scheduler has added them up until `at`. Older dollars count
    less, so this is no bill."""

    at: Utc
    dollars: dict[str, float] = Field(default_factory=dict)


class SingleDocument(Generic[D]):
    """One document that is read and replaced as a whole. Both methods raise the store's errors."""

    def __init__(self, bucket: Bucket, prefix: str, name: str, model: type[D]) -> None:
        self._table, self._name = Table(bucket, prefix, model), name

    def read(self) -> D | None:
        """Return the document. None if nobody has written it yet.

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
        usage: What teams have used lately.
        fleet: The state of the pools.
        changeovers: How long changeovers took.
        anomalies: What is not as usual. None until a scheduler first finds something.
        spending: What teams have spent by day.
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
