"""Learns which loose files a program writes together, from the order in which it writes them.

A program writes the files of a checkpoint one after the other, and then the same files again. The *leader* is the file
that begins each round. The *members* are written in every round. A round is complete when each member was written
since the leader was. A file that is missing in two rounds in a row, such as `best.pt`, is no member.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

_MISSES = 2
"""Rounds in a row without a file after which the file is no member: a best model is often written in the first."""


@dataclass(frozen=True)
class Write:
    """One write of a loose file.

    Attributes:
        path: of the file.
        template: the path without the number of its version.
        new: whether there was no file of this path before.
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
        rounds: how many rounds were seen whole.
        current: the writes of the present round, in order.
    """

    leader: bytes | None = None
    members: frozenset[bytes] = frozenset()
    rounds: int = 0
    current: list[Write] = field(default_factory=list)
    _misses: dict[bytes, int] = field(default_factory=dict)

    def observe(self, writes: Iterable[Write]) -> None:
        """Take note of writes, in the order in which they were made."""
        for write in writes:
            self._observe(write)

    @property
    def whole(self) -> bool:
        """Whether the present round is complete, as far as that is known from earlier rounds."""
        return self.rounds > 0 and self.members <= {write.template for write in self.current}

    @property
    def replaced(self) -> bool:
        """Whether the present round has written over a file, so that the round before it is gone."""
        return any(not write.new for write in self.current)

    def _observe(self, write: Write) -> None:
        if self.leader is None:
            self.leader = write.template
        templates = [earlier.template for earlier in self.current]
        if write.template == self.leader and templates:
            self._close(frozenset(templates) - {self.leader})
            self.current = [write]
        elif write.template != self.leader and write.template in templates and not self._is_member(write.template):
            # It comes more often than the leader: the rounds are its own.
            begin = templates.index(write.template)
            self.leader, self.members, self._misses = write.template, frozenset(templates[begin + 1 :]), {}
            self.members -= {write.template}
            self.rounds = max(self.rounds, 1)
            self.current = [write]
        else:
            self.current.append(write)

    def _is_member(self, template: bytes) -> bool:
        return self.rounds > 0 and template in self.members

    def _close(self, written: frozenset[bytes]) -> None:
        if self.rounds == 0:
            self.members = written
        self._misses = {member: self._misses.get(member, 0) + 1 for member in self.members - written}
        self.members -= {member for member, misses in self._misses.items() if misses >= _MISSES}
        self.rounds += 1
