"""The single documents of a cluster: its manifest, prices and budgets, and requests to drain or roll it."""

from collections.abc import Callable

from everspot_core.capacity.price_table import PriceTable
from everspot_core.cluster.manifest import DeclaredCapacity, Manifest, left_out
from everspot_core.costs.team_budgets import Budgets
from everspot_core.jobs.records import Request, RollRequest
from everspot_core.validation.problems import Problem

from everspot_store.backend import Versioned
from everspot_store.bucket import Bucket
from everspot_store.errors import NoCluster, StoreUnavailable
from everspot_store.region import located
from everspot_store.table import Table

_PRICES = "prices"
_MANIFEST = "cluster"
_DECLARED = "declared"
_DRAIN = "drain"
_ROLL = "roll"
_BUDGETS = "budgets"
_CHANGES = 5  # tries of a change while others change the same document


class ClusterDocuments:
    """The documents at the root of a control bucket. Thread-safe."""

    def __init__(self, control: Bucket) -> None:
        self.control = control
        self._requests = Table(control, "", Request)
        self._budgets = Table(control, "", Budgets)
        self._manifest: Manifest | None = None

    def manifest(self) -> Manifest:
        """Return the manifest of `cluster.json`, read once.

        Raises:
            NoCluster: if it does not exist.
        """
        if self._manifest is None:
            self._manifest = read_manifest(self.control)
        return self._manifest

    def read_manifest(self) -> Versioned[Manifest] | None:
        """Return the manifest of `cluster.json`, read again, because `pulumi up` may have rewritten it.

        Raises:
            BadDocument: if it cannot be read.
        """
        manifest: Versioned[Manifest] | None = Table(self.control, "", Manifest).get(_MANIFEST)
        return manifest and Versioned(located(manifest.value), manifest.version)

    def left_out_of_manifest(self) -> list[Problem]:
        """Return the fields of `cluster.json` that this release does not know, such as misspelt ones."""
        content = self.control.get(f"{_MANIFEST}.json")
        return [] if content is None else left_out(content.value)

    def write_manifest(self, manifest: Manifest) -> None:
        """Write `cluster.json`, for clusters on a folder. On a cloud the infrastructure writes it."""
        self.control.put(f"{_MANIFEST}.json", manifest.to_json())
        self._manifest = manifest

    def declared_capacity(self) -> DeclaredCapacity | None:
        """Return the fleets and groups of the cluster's stack, from `declared.json`; None if no update has written it
        yet.

        Raises:
            BadDocument: if it cannot be read.
        """
        document = Table(self.control, "", DeclaredCapacity).get(_DECLARED)
        return None if document is None else document.value

    def write_declared_capacity(self, declared: DeclaredCapacity) -> None:
        """Write `declared.json`. On a cloud the infrastructure writes it."""
        self.control.put(f"{_DECLARED}.json", declared.to_json())

    def price_table(self) -> PriceTable | None:
        """Return the newest prices that were read from the cloud's price lists for this cluster, or None."""
        document = Table(self.control, "", PriceTable).get(_PRICES)
        return None if document is None else document.value

    def write_price_table(self, table: PriceTable) -> None:
        """Replace the price table."""
        self.control.put(f"{_PRICES}.json", table.to_json())

    def budgets(self) -> Budgets:
        """Return the budgets of teams and of the environment. Without a document there are no caps.

        Raises:
            BadDocument: if it cannot be read.
        """
        document = self._budgets.get(_BUDGETS)
        return Budgets() if document is None else document.value

    def change_budgets(self, change: Callable[[Budgets], Budgets]) -> Budgets:
        """Replace the budgets by the result of `change`. If somebody else changes them at the same time, both changes
        take effect.

        Raises:
            BadDocument: if they cannot be read.
            StoreUnavailable: if others changed them during every try.
        """
        for _ in range(_CHANGES):
            current = self._budgets.get(_BUDGETS)
            changed = change(Budgets() if current is None else current.value)
            table = self._budgets
            done = table.create(_BUDGETS, changed) if current is None else table.replace(_BUDGETS, current, changed)
            if done is not None:
                return done.value
        raise StoreUnavailable(f"{_BUDGETS}.json was changed by others {_CHANGES} times in a row")

    def drain_request(self) -> Request | None:
        """Return the request to drain the cluster, or None. During a drain every job leaves its instance, and none
        starts."""
        document = self._requests.get(_DRAIN)
        return None if document is None else document.value

    def request_drain(self, request: Request) -> None:
        """Ask for a drain. A second request changes nothing."""
        self._requests.create(_DRAIN, request)

    def clear_drain(self) -> None:
        """Withdraw the request."""
        self._requests.delete(_DRAIN)

    def roll_request(self) -> RollRequest | None:
        """Return the request to replace busy instances of every generation but the one it names, or None."""
        document = Table(self.control, "", RollRequest).get(_ROLL)
        return None if document is None else document.value

    def request_roll(self, request: RollRequest) -> None:
        """Write the request to roll. It replaces an earlier one."""
        Table(self.control, "", RollRequest).put(_ROLL, request)


def read_manifest(control: Bucket) -> Manifest:
    """Return the manifest of `cluster.json` in a control bucket.

    Raises:
        NoCluster: if it does not exist.
    """
    manifest: Versioned[Manifest] | None = Table(control, "", Manifest).get(_MANIFEST)
    if manifest is None:
        raise NoCluster(f"{control.url} has no {_MANIFEST}.json: it is no control bucket of a cluster")
    return located(manifest.value)
