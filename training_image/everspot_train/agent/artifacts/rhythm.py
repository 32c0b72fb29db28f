"""Learns which loose files a program writes together, from the order in which it writes them.

A program writes the files of a checkpoint one after another; this is a *round*. Later rounds write the same files
again. The *leader* is the first file of each round, and the *members* are written in every round. A round is complete
when each member was written after the leader. A file that is missing in two consecutive rounds, such as `best.pt`, is
no member.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

_MISSES = 2
"""A file that is missing in this many consecutive rounds is no member. A best model is often written in the first
round."""


@dataclass(frozen=True)
class Write:
    """One write of a loose file.

    Attributes:
        path: of the file.
        template: the path without the number of its version.
        new: whether the path did not exist before.
    """

    path: bytes
    template: bytes
    new: bool


@dataclass
class Rhythm:
    """The rounds that a program has written.

    Attributes:
        leader: the template that begins a round; None before the first write.
        members: the templates that belong to every round.
        rounds: the number of complete rounds.
        current: the writes of the present round, in order.
    """

    leader: bytes | None = None
    members: frozenset[bytes] = frozenset()
    rounds: int = 0
    current: list[Write] = field(default_factory=list)
    _misses: dict[bytes, int] = field(default_factory=dict)
    _twice: set[bytes] = field(default_factory=set)  # members that a round writes more than once
    _led: bool = True  # whether the leader has begun the present round
    _places: dict[bytes, int] = field(default_factory=dict)  # the first position of each template in the present round

    def observe(self, writes: Iterable[Write]) -> None:
        """Record writes, in their order."""
        for write in writes:
            self._observe(write)

    @property
    def whole(self) -> bool:
        """Whether the present round is complete, judged by earlier rounds."""
        return self.rounds > 0 and self.members <= self._places.keys()

    @property
    def replaced(self) -> bool:
        """Whether the present round has overwritten a file, so that the round before it is lost."""
        return any(not write.new for write in self.current)

    def _observe(self, write: Write) -> None:
        if self.leader is None:
            self.leader = write.template
        again = write.template in self._places
        if write.template == self.leader and self.current:
            if self._led or self.whole:
                self._close()
            else:  # the writes before the leader belong to the end of the round before
                self._twice.add(self.current[0].template)
            self._begin(write, led=True)
        elif again and self._begins_without_leader(write.template):
            self._close()
            self._begin(write, led=False)
        elif again and write.template != self.leader and not self._is_member(write.template):
            # It is written more often than the leader, so it begins the rounds.
            after = {write.template for write in self.current[self._places[write.template] + 1 :]}
            self.leader, self.members, self._misses = write.template, frozenset(after) - {write.template}, {}
            self.rounds = max(self.rounds, 1)
            self._begin(write, led=True)
        else:
            self._places.setdefault(write.template, len(self.current))
            self.current.append(write)

    def _begin(self, write: Write, *, led: bool) -> None:
        self.current, self._places, self._led = [write], {write.template: 0}, led

    def _begins_without_leader(self, template: bytes) -> bool:
        """Return whether a member that the complete round has already written begins the next round: the leader may be
        a best model, which is not written in each round."""
        written_last = self.current[-1].template == template
        return not written_last and self.whole and self._is_member(template) and template not in self._twice

    def _is_member(self, template: bytes) -> bool:
        return self.rounds > 0 and template in self.members

    def _close(self) -> None:
        written = frozenset(self._places) - {self.leader}
        if self.rounds == 0:
            self.members = written
        self._misses = {member: self._misses.get(member, 0) + 1 for member in self.members - written}
        self.members -= {member for member, misses in self._misses.items() if misses >= _MISSES}
        self.rounds += 1
