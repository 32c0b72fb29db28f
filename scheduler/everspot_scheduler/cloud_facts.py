"""Facts from the cloud: its messages and descriptions, kept until their meaning is in the store.

All facts can be forgotten: messages that were not deleted come again, and descriptions are asked for again.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from everspot_clouds.base import CloudEnd, CloudInstance, Message, MessageKind, Phase

_REMEMBERED = 10_000  # messages; the rest comes again
_Key = tuple[MessageKind, str, datetime | None, str]
_log = logging.getLogger(__name__)


@dataclass
class Facts:
    """The cloud's facts about the cluster's instances. All moments are market time, except monotonic ones.

    Attributes:
        described: The instances of the last description, by id.
        described_at: The monotonic time of the last description; None: there was none yet.
        ends: The ends that the cloud reports apart from a description, by instance.
        warned: The instances with an interruption notice, with its deadline where it has one.
        warned_at: When each of them got its notice.
        rebalance: The instances with a rebalance recommendation.
        ended_ids: The instances that have ended, by a message.
        unknown: The instances that have reported and that the last description lacks.
        confirmed_unknown: Those of them that had reported before the last description.
        ended_at: When each instance began to end or ended, by a message, whichever is first.
        waiting: The messages whose meaning is not stored yet, with the monotonic time at which each came.
    """

    described: dict[str, CloudInstance] = field(default_factory=dict)
    described_at: timedelta | None = None
    ends: dict[str, CloudEnd] = field(default_factory=dict)
    warned: dict[str, datetime | None] = field(default_factory=dict)
    warned_at: dict[str, datetime] = field(default_factory=dict)
    rebalance: set[str] = field(default_factory=set)
    ended_ids: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    confirmed_unknown: set[str] = field(default_factory=set)
    ended_at: dict[str, datetime] = field(default_factory=dict)
    waiting: dict[_Key, tuple[Message, timedelta]] = field(default_factory=dict)

    def describe(self, instances: Iterable[CloudInstance], now: timedelta, ends: Iterable[CloudEnd] = ()) -> None:
        """Take in a description of the whole cluster, and the ends that the cloud reports apart from it. `now`:
        monotonic time of the request."""
        self.described = {i.instance_id: i for i in instances}
        for name, at in list(self.ended_at.items()):
            if self._began_after(name, at):  # somebody started it again
                self.ended_ids.discard(name)
                del self.ended_at[name]
        self.tell_ends(ends)
        self.confirmed_unknown = self.unknown - self.described.keys()
        self.described_at = now

    def tell_ends(self, ends: Iterable[CloudEnd]) -> None:
        """Take in the ends that the cloud reports apart from a description."""
        self.ends = {end.instance_id: end for end in ends}

    def receive(self, messages: Iterable[Message], now: timedelta) -> None:
        """Keep messages until their meaning is in the store. A repeated message only replaces the handle."""
        for message in messages:
            key = (message.kind, message.instance_id, message.at, message.text)
            since = self.waiting[key][1] if key in self.waiting else now
            self.waiting[key] = (message, since)
        while len(self.waiting) > _REMEMBERED:
            del self.waiting[next(iter(self.waiting))]

    def understand(self, is_known: Callable[[str], bool]) -> None:
        """Learn from the waiting messages about instances of this cluster."""
        for message, _ in self.waiting.values():
            if message.kind is MessageKind.CAPACITY or not is_known(message.instance_id):
                continue
            self._learn(message)

    def record_notices(self, notices: Mapping[str, datetime]) -> None:
        """Learn when instances say that they got notice. A cloud's message may come later, or only at the end."""
        for name, at in notices.items():
            self.warned_at.setdefault(name, at)

    def _learn(self, message: Message) -> None:
        name = message.instance_id
        match message.kind:
            case MessageKind.WARNING:
                self.warned.setdefault(name, message.deadline)
                at = message.at or message.deadline
                if at is not None:
                    self.warned_at.setdefault(name, at)
            case MessageKind.REBALANCE:
                self.rebalance.add(name)
            case MessageKind.ENDING | MessageKind.ENDED if not self._is_past(message):
                if message.kind is MessageKind.ENDED:
                    self.ended_ids.add(name)
                if message.at is not None:  # an instance costs nothing from the first of the two on
                    self.ended_at[name] = min(message.at, self.ended_at.get(name, message.at))
            case _:
                pass

    def wants_description(self, is_known: Callable[[str], bool]) -> bool:
        """Return whether a waiting message reports a change, after the last description, that a new description would
        explain.

        Messages about unknown instances do not call for a description, because a shared account may have many.
        """
        changes = (MessageKind.LAUNCHED, MessageKind.ENDING, MessageKind.ENDED)
        return any(
            message.kind in changes and self._newer(received) and is_known(message.instance_id)
            for message, received in self.waiting.values()
        )

    def acknowledgeable(self, is_known: Callable[[str], bool], written: Callable[[Message], bool]) -> list[Message]:
        """Take out the messages that may be deleted from the queue.

        These are the messages whose meaning is written, and the messages about instances that a later description does
        not know: those instances belong to others who share the account.
        """
        done = []
        for key, (message, received) in list(self.waiting.items()):
            if message.kind is MessageKind.CAPACITY:
                _log.warning("the fleet could not launch: %s", message.text)
                may_delete = True
            elif self._is_past(message):
                may_delete = True
            elif not is_known(message.instance_id):
                may_delete = not self._newer(received)
            else:
                may_delete = written(message)
            if may_delete:
                del self.waiting[key]
                done.append(message)
        return done

    def _is_past(self, message: Message) -> bool:
        """Return whether a message reports the end of an instance that was started again since."""
        ends = message.kind in (MessageKind.ENDING, MessageKind.ENDED)
        return ends and message.at is not None and self._began_after(message.instance_id, message.at)

    def _began_after(self, instance_id: str, moment: datetime) -> bool:
        """Return whether the cloud describes the instance as alive since after a moment."""
        described = self.described.get(instance_id)
        return described is not None and described.phase is Phase.ALIVE and described.launched_at > moment

    def _newer(self, received: timedelta) -> bool:
        return self.described_at is None or received >= self.described_at

    def may_exist(self, instance_id: str) -> bool:
        """Return whether the cloud describes the instance, or has described nothing yet."""
        return self.described_at is None or instance_id in self.described

    def has_unknown_instance(self, reported: Iterable[str]) -> bool:
        """Return whether an instance has reported that the last description does not know, and that was not asked for
        yet."""
        self.unknown = {name for name in reported if not self.may_exist(name)}
        return not self.unknown <= self.confirmed_unknown

    def is_gone(self, instance_id: str) -> bool:
        """Return whether the instance has ended, by the cloud."""
        described = self.described.get(instance_id)
        # An instance whose end was reported and that is still described is shutting down, which takes the cloud a
        # while.
        ended = described.phase is Phase.ENDED if described is not None else instance_id in self.ends
        return instance_id in self.ended_ids or ended

    def ending(self, instance_id: str) -> bool:
        """Return whether the cloud is about to take the instance, or is ending it."""
        described = self.described.get(instance_id)
        return instance_id in self.warned or (described is not None and described.phase is Phase.ENDING)
