"""Makes the scheduler's calls to the cloud, each at its own rate. An error of the cloud never ends a tick."""

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta

from everspot_clouds.base import Cloud, Message, Trouble
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.clock import Clock
from everspot_store import StoreDenied, StoreMissing, StoreUnavailable

from everspot_scheduler.backoff import Backoff
from everspot_scheduler.cloud_facts import Facts
from everspot_scheduler.elastic.groups import launchable_pools
from everspot_scheduler.elastic.manager import ElasticManager
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.scores import ASK_EVERY, Scores

_log = logging.getLogger(__name__)


class CloudCalls:
    """The scheduler's requests to its cloud, each with its own interval. `tick`: real time between two ticks."""

    def __init__(self, cloud: Cloud, clock: Clock, tick: timedelta) -> None:
        self._cloud, self._clock = cloud, clock
        seconds = timedelta(seconds=1)
        self._instances = Backoff(max(5 * seconds, 2 * tick))
        self._ends_backoff = Backoff(max(5 * seconds, 2 * tick))
        self._prices = Backoff(max(15 * seconds, 6 * tick))
        self._scores = Backoff(max(ASK_EVERY, 6 * tick))
        self._terminate_backoff = Backoff(tick / 2)

    def instances(self, facts: Facts, *, urgent: bool) -> None:
        """Ask for a description of all instances of the cluster, and for how others ended, if it is due. The
        description counts even if the ends cannot be read; known ends stay known."""

        def call() -> None:
            now = self._clock.monotonic()
            facts.describe(self._cloud.instances(), now, facts.ends.values())

        if self._call_cloud(self._instances, call, "describing instances", urgent=urgent):
            description = "reading how instances ended"
            self._call_cloud(self._ends_backoff, lambda: facts.tell_ends(self._cloud.ends()), description, urgent=True)

    def prices(self, ledger: Ledger, elastic_manager: ElasticManager) -> None:
        """Request the spot prices of pools in use and of pools that may be launched in, if that is due."""
        elastic = elastic_manager.declared
        watched = [(p.instance_type, p.zone) for p in launchable_pools(elastic)] if elastic is not None else []
        self._call_cloud(self._prices, lambda: ledger.note_prices(self._cloud, watched), "reading spot prices")

    def scores(self, scores: Scores, request: tuple[Iterable[InstanceType], int] | None) -> None:
        """Ask for the placement scores that are wanted, if any are."""
        if request is not None:
            self._call_cloud(self._scores, lambda: scores.refresh(self._cloud, request), "asking for placement scores")

    def end(self, elastic_manager: ElasticManager, names: list[str]) -> None:
        """Ask to end these instances, if it is due."""
        self._call_cloud(self._terminate_backoff, lambda: elastic_manager.end(names), "ending instances")

    def acknowledge(self, messages: Iterable[Message]) -> None:
        """Delete these messages from the queue. A message that could not be deleted comes again, which does no harm."""
        try:
            self._cloud.acknowledge(messages)
        except Exception as error:
            self._trouble("deleting messages", error)

    def _call_cloud(
        self, backoff: Backoff, call: Callable[[], None], description: str, *, urgent: bool = False
    ) -> bool:
        """Make a call if it is due, and return whether it was made and answered. Errors of the store are raised; those
        of the cloud are logged and double the interval."""
        now = self._clock.monotonic()
        if not backoff.due(now, urgent=urgent):
            return False
        backoff.called(now)
        try:
            call()
            backoff.went_well()
            return True
        except (StoreUnavailable, StoreDenied, StoreMissing):
            raise
        except Exception as error:
            backoff.throttled()
            self._trouble(description, error)
            return False

    def _trouble(self, description: str, error: Exception) -> None:
        """Log an error of the cloud at the level that its kind calls for."""
        match self._cloud.trouble(error):
            case Trouble.CREDENTIALS:
                _log.critical("%s failed for want of credentials or permission: %s", description, error)
            case Trouble.REQUEST:
                _log.error("%s failed: %s", description, error, exc_info=error)
            case trouble:
                _log.warning("%s failed (%s): %s", description, trouble.value, error)
