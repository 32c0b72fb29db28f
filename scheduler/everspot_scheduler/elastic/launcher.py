"""Asks the cloud for what a plan launches, and finds out what came of what was asked before.

The order is: the intent, the request, the outcome. Whoever finds an intent without outcome asks the same again, which
brings nothing more if it was carried out (the intent holds the whole request and its token), or takes what the cloud
describes under its token for what came of it. While there is one, nothing new is launched.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from everspot_clouds.base import Cloud, CloudInstance, LaunchAnswer, Launched, Trouble
from everspot_core.launching import LaunchIntent, LaunchTrouble
from everspot_core.manifest import Elastic
from everspot_core.schedule import Launch, PoolKey
from everspot_store import Store

from everspot_scheduler.elastic.groups import Group, groups, launch_pools
from everspot_scheduler.elastic.intents import Intents
from everspot_scheduler.elastic.room import Room
from everspot_scheduler.pace import Pace
from everspot_scheduler.together import side_by_side

REQUESTS_AT_ONCE = 8
"""Launch requests in one tick. A cloud may grant an account no more than five changes a second
(docs/scheduler.md cites it), and a client repeats each up to three times."""
STALE = timedelta(minutes=10)
"""Market time after which an intent without outcome is not asked for again: whoever wrote it is gone, and so is the
need that it was written for. What it brought is found by its token."""
Price = Callable[[PoolKey], float | None]
_log = logging.getLogger(__name__)


class Launcher:
    """Launches for one cluster. All methods raise the store's errors; the cloud's are sorted, logged and remembered."""

    def __init__(self, store: Store, cloud: Cloud, intents: Intents, scheduler_id: str, tick: timedelta) -> None:
        self._store, self._cloud, self._intents, self._id = store, cloud, intents, scheduler_id
        self._pace = Pace(tick / 2)
        self.trouble = ""

    def settle(self, described: Iterable[CloudInstance], *, asking: bool) -> None:
        """Find out what came of every intent without outcome. `asking`: launches are still wanted."""
        open_intents = self._intents.unsettled()
        if not open_intents:
            return
        here = list(described)
        now, again = self._store.clock.now(), list[LaunchIntent]()
        for intent in open_intents:
            found = [_launched(i) for i in here if i.launch == intent.token]
            if len(found) >= intent.count or not asking or now - intent.made_at >= STALE:
                self._settle(intent, LaunchAnswer(), found)
            else:
                again.append(intent)
        if again and self._pace.due(self._store.clock.monotonic()):
            self._request(again, here)

    def launch(self, launches: Sequence[Launch], elastic: Elastic, room: Room, price: Price) -> None:
        """Launch what the plan asks for, as far as there is room under the cap."""
        clock = self._store.clock
        if not launches or self._intents.unsettled() or not self._pace.due(clock.monotonic()):
            return
        made = list[LaunchIntent]()
        for group in groups(launches, elastic):
            group_room = room.cut(group, price)
            if group_room is None or len(made) >= REQUESTS_AT_ONCE:
                continue
            intent = self._draft(*group_room, elastic)
            if not self._intents.create(intent):
                _log.info("overtaken: launch %d was written by another scheduler", intent.seq)
                break
            made.append(intent)
        self._request(made, ())

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
        """Ask the cloud, and write what it says. What got no answer stays without outcome, and is asked again."""
        if not intents:
            return
        self._pace.called(self._store.clock.monotonic())
        answers = side_by_side(self._ask, intents, alone=1)
        self.trouble = ""
        for intent, answer in zip(intents, answers, strict=True):
            if isinstance(answer, LaunchAnswer):
                self._settle(intent, answer, [_launched(i) for i in described if i.launch == intent.token])
            else:
                self._lost(intent, answer)
        if not self.trouble:
            self._pace.went_well()
        else:
            self._pace.throttled()

    def _ask(self, intent: LaunchIntent) -> LaunchAnswer | Exception:
        try:
            return self._cloud.launch(intent)
        except Exception as error:
            return error

    def _lost(self, intent: LaunchIntent, error: Exception) -> None:
        kind = self._cloud.trouble(error)
        level = logging.WARNING if kind in (Trouble.THROTTLED, Trouble.TRANSIENT) else logging.ERROR
        _log.log(level, "launch %d got no answer (%s) and is asked again: %s", intent.seq, kind.value, error)
        self.trouble = f"launch {intent.seq} got no answer ({kind.value}) and is asked again"

    def _settle(self, intent: LaunchIntent, answer: LaunchAnswer, found: Iterable[Launched]) -> None:
        """What an answer tells and what is described go together: either may lag."""
        brought = {i.instance_id: i for i in answer.instances} | {i.instance_id: i for i in found}
        settled = self._intents.settle(intent, brought.values(), answer.errors)
        _tell(settled)


def _tell(intent: LaunchIntent) -> None:
    outcome = intent.outcome
    if outcome is None:
        return
    kinds = {e.kind for e in outcome.errors}
    level = logging.INFO
    if LaunchTrouble.CREDENTIALS in kinds:
        level = logging.CRITICAL
    elif kinds & {LaunchTrouble.REQUEST, LaunchTrouble.QUOTA}:
        level = logging.ERROR
    told = (f"{e.instance_type} {e.zone} {e.kind.value}: {e.code} {e.message}".strip() for e in outcome.errors)
    words = "; ".join(told)
    _log.log(
        level, "launch %d (%s) brought %d of %d instances%s", intent.seq, intent.market.value, len(outcome.instances),
        intent.count, f": {words}" if words else "",
    )  # fmt: skip


def _launched(instance: CloudInstance) -> Launched:
    return Launched(instance_id=instance.instance_id, instance_type=instance.instance_type, zone=instance.zone)
