"""Asks the cloud for a plan's launches, and settles intents that have no outcome yet.

The order is: the intent, the request, the outcome. A scheduler that finds an intent without an outcome has two ways. It
repeats the request, which launches nothing more if it was carried out, because the intent holds the whole request and
its token. Or it takes the cloud's description of the token as the outcome. While there is such an intent, nothing new
is launched.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from everspot_clouds.base import Cloud, CloudInstance, LaunchAnswer, Launched, StillPending, Trouble
from everspot_core.capacity.launching import LaunchIntent, LaunchTrouble
from everspot_core.cluster.manifest import Elastic
from everspot_core.schedule import Launch, PoolKey
from everspot_store import Store

from everspot_scheduler.backoff import Backoff
from everspot_scheduler.elastic.groups import Group, groups, launch_pools
from everspot_scheduler.elastic.intents import Intents
from everspot_scheduler.elastic.launch_cap import RemainingCap
from everspot_scheduler.parallel import run_parallel

REQUESTS_AT_ONCE = 8
"""The most launch requests in one tick. A cloud may limit an account to five changes a second
(docs/internals/scheduler.md cites it), and a client repeats each up to three times."""
STALE = timedelta(minutes=10)
"""Market time after which the request of an intent without an outcome is not repeated: its writer is gone, and the need
may be too. Instances that it launched are found by their token."""
Price = Callable[[PoolKey], float | None]
_log = logging.getLogger(__name__)


class Launcher:
    """Launches for one cluster. All methods raise the store's errors. The cloud's errors are logged, and `trouble` has
    a sentence about the last one."""

    def __init__(self, store: Store, cloud: Cloud, intents: Intents, scheduler_id: str, tick: timedelta) -> None:
        self._store, self._cloud, self._intents, self._id = store, cloud, intents, scheduler_id
        self._backoff = Backoff(tick / 2)
        self.trouble = ""

    def settle_intents(self, described: Iterable[CloudInstance], *, repeat_requests: bool) -> None:
        """Settle every intent without an outcome, or repeat its request. `repeat_requests`: whether launches are still
        wanted."""
        open_intents = self._intents.unsettled()
        if not open_intents:
            return
        instances = list(described)
        now, repeated = self._store.clock.now(), list[LaunchIntent]()
        for intent in open_intents:
            launched = [_launched(i) for i in instances if i.launch == intent.token]
            if len(launched) >= intent.count or not repeat_requests or now - intent.made_at >= STALE:
                self._record_outcome(intent, LaunchAnswer(), launched)
            else:
                repeated.append(intent)
        if repeated and self._backoff.due(self._store.clock.monotonic()):
            self._request(repeated, instances)

    def launch(self, launches: Sequence[Launch], elastic: Elastic, remaining_cap: RemainingCap, price: Price) -> None:
        """Launch the instances of the plan, as far as the cap allows."""
        clock = self._store.clock
        if not launches or self._intents.unsettled() or not self._backoff.due(clock.monotonic()):
            return
        written_intents = list[LaunchIntent]()
        for group in groups(launches, elastic):
            part_and_usd = remaining_cap.cut(group, price)
            if part_and_usd is None or len(written_intents) >= REQUESTS_AT_ONCE:
                continue
            intent = self._draft(*part_and_usd, elastic)
            if not self._intents.create(intent):
                _log.info("overtaken: launch %d was written by another scheduler", intent.seq)
                break
            written_intents.append(intent)
        self._request(written_intents, ())

    def _draft(self, group: Group, usd_per_hour: float, elastic: Elastic) -> LaunchIntent:
        return LaunchIntent(
            seq=self._intents.next(),
            token=self._intents.token(),
            jobs=group.jobs,
            pools=tuple(launch_pools(group.pools, elastic.places, elastic.max_prices)),
            ordered=group.ordered,
            whole=group.whole,
            template=elastic.template,
            template_version=elastic.template_version,
            tags=elastic.tags,
            usd_per_hour=usd_per_hour,
            made_at=self._store.clock.now(),
            scheduler_id=self._id,
        )

    def _request(self, intents: list[LaunchIntent], described: Iterable[CloudInstance]) -> None:
        """Ask the cloud, and write the outcomes. An intent that got no answer has none, and is asked again."""
        if not intents:
            return
        self._backoff.called(self._store.clock.monotonic())
        answers = run_parallel(self._launch, intents, sequential_up_to=1)
        self.trouble = ""
        for intent, answer in zip(intents, answers, strict=True):
            if isinstance(answer, LaunchAnswer):
                self._record_outcome(intent, answer, [_launched(i) for i in described if i.launch == intent.token])
            else:
                self._lost(intent, answer)
        if any(isinstance(answer, Exception) and not isinstance(answer, StillPending) for answer in answers):
            self._backoff.throttled()
        else:
            self._backoff.went_well()

    def _launch(self, intent: LaunchIntent) -> LaunchAnswer | Exception:
        try:
            return self._cloud.launch(intent)
        except Exception as error:
            return error

    def _lost(self, intent: LaunchIntent, error: Exception) -> None:
        if isinstance(error, StillPending):
            _log.info("launch %d is under way: %s", intent.seq, error)
            self.trouble = f"launch {intent.seq} is under way: {error}"
            return
        kind = self._cloud.trouble(error)
        level = logging.WARNING if kind in (Trouble.THROTTLED, Trouble.TRANSIENT) else logging.ERROR
        _log.log(level, "launch %d got no answer (%s) and is asked again: %s", intent.seq, kind.value, error)
        self.trouble = f"launch {intent.seq} got no answer ({kind.value}) and is asked again"

    def _record_outcome(self, intent: LaunchIntent, answer: LaunchAnswer, described: Iterable[Launched]) -> None:
        """Write the outcome from both the answer and the description, because either may lag behind the other."""
        instances_by_id = {i.instance_id: i for i in answer.instances} | {i.instance_id: i for i in described}
        settled = self._intents.record_outcome(intent, instances_by_id.values(), answer.errors)
        _log_outcome(settled)


def _log_outcome(intent: LaunchIntent) -> None:
    outcome = intent.outcome
    if outcome is None:
        return
    kinds = {e.kind for e in outcome.errors}
    level = logging.INFO
    if LaunchTrouble.CREDENTIALS in kinds:
        level = logging.CRITICAL
    elif kinds & {LaunchTrouble.REQUEST, LaunchTrouble.QUOTA}:
        level = logging.ERROR
    error_texts = (f"{e.instance_type} {e.zone} {e.kind.value}: {e.code} {e.message}".strip() for e in outcome.errors)
    # The cloud may have chosen another of the pools than the plan named first.
    instance_texts = (f"{i.instance_id} {i.instance_type} in {i.zone}" for i in outcome.instances)
    details = "; ".join((*instance_texts, *error_texts))
    _log.log(
        level, "launch %d (%s) brought %d of %d instances%s", intent.seq, intent.market.value, len(outcome.instances),
        intent.count, f": {details}" if details else "",
    )  # fmt: skip


def _launched(instance: CloudInstance) -> Launched:
    return Launched(
        instance_id=instance.instance_id,
        instance_type=instance.instance_type,
        zone=instance.zone,
        node=instance.node,
        node_share=instance.node_share,
    )
