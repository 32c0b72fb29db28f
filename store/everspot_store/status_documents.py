"""The status documents of schedulers: why each job waits, the use and spending of teams, the pools, measured
changeovers, anomalies."""

from everspot_core.changeover import Changeovers
from everspot_core.documents import Document, Stored, Utc
from everspot_core.governance.anomalies import Anomalies, DailySpending
from everspot_core.market import Market
from pydantic import Field

from everspot_store.bucket import Bucket
from everspot_store.fleet_state import FleetState, PeerMarket
from everspot_store.table import Table

_WAITING, _USAGE, _POOLS, _CHANGEOVERS = "waiting", "usage", "pools", "changeovers"
_ANOMALIES, _SPENDING = "anomalies", "spending"


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


class StatusDocuments:
    """The status documents of a cluster's schedulers: one document each, at the root of the control bucket or in its
    ledger.

    If several schedulers write, the last one wins; all of them see the same cluster. Every method raises the store's
    errors. `peers`: the published pools of each peer, by name.
    """

    def __init__(self, control: Bucket) -> None:
        self._waiting, self._usage = Table(control, "", Waiting), Table(control, "", TeamUsage)
        self._fleet = Table(control, "", FleetState)
        self._changeovers = Table(control, "ledger", Changeovers)
        self._anomalies = Table(control, "ledger", Anomalies)
        self._spending = Table(control, "ledger", DailySpending)
        self.peers = Table(control, "ledger/peers", PeerMarket)

    def waiting(self) -> Waiting | None:
        """Return why jobs wait; None if no scheduler has written it yet.

        Raises:
            BadDocument: if it cannot be read.
        """
        document = self._waiting.get(_WAITING)
        return None if document is None else document.value

    def write_waiting(self, waiting: Waiting) -> None:
        """Replace the note on waiting jobs."""
        self._waiting.put(_WAITING, waiting)

    def usage(self) -> TeamUsage | None:
        """Return the recent use of teams; None if no scheduler has written it yet.

        Raises:
            BadDocument: if it cannot be read.
        """
        document = self._usage.get(_USAGE)
        return None if document is None else document.value

    def write_usage(self, usage: TeamUsage) -> None:
        """Replace the note on usage."""
        self._usage.put(_USAGE, usage)

    def fleet(self) -> FleetState | None:
        """Return the state of the pools; None if no scheduler has written it yet.

        Raises:
            BadDocument: if it cannot be read.
        """
        document = self._fleet.get(_POOLS)
        return None if document is None else document.value

    def write_fleet(self, state: FleetState) -> None:
        """Replace the note on pools."""
        self._fleet.put(_POOLS, state)

    def changeovers(self) -> Changeovers | None:
        """Return the measured changeovers; None if no scheduler has written them yet.

        Raises:
            BadDocument: if it cannot be read.
        """
        document = self._changeovers.get(_CHANGEOVERS)
        return None if document is None else document.value

    def write_changeovers(self, changeovers: Changeovers) -> None:
        """Replace the note on changeovers."""
        self._changeovers.put(_CHANGEOVERS, changeovers)

    def anomalies(self) -> Anomalies | None:
        """Return the anomalies; None if no scheduler has ever found any.

        Raises:
            BadDocument: if it cannot be read.
        """
        document = self._anomalies.get(_ANOMALIES)
        return None if document is None else document.value

    def write_anomalies(self, anomalies: Anomalies) -> None:
        """Replace the note on anomalies."""
        self._anomalies.put(_ANOMALIES, anomalies)

    def spending(self) -> DailySpending | None:
        """Return the spending of teams by day; None if no scheduler has written it yet.

        Raises:
            BadDocument: if it cannot be read.
        """
        document = self._spending.get(_SPENDING)
        return None if document is None else document.value

    def write_spending(self, spending: DailySpending) -> None:
        """Replace the note on spending by day."""
        self._spending.put(_SPENDING, spending)
