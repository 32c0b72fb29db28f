"""A calendar month in UTC, the period of exports, charges and audits."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from everspot_core.costs.team_budgets import Period

_WRITTEN = re.compile(r"(\d{4})-(0[1-9]|1[0-2])")
_FIRST, _LAST = 2000, 9998


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """From `begin` until just before `end`, both midnights in UTC."""

    begin: datetime

    @classmethod
    def parse(cls, text: str) -> "Month":
        """Return the month that a person writes as `2026-10`.

        Raises:
            ValueError: if it is written otherwise.
        """
        match = _WRITTEN.fullmatch(text)
        if match is None or not _FIRST <= int(match[1]) <= _LAST:
            raise ValueError(f"{text!r} is not a month, such as 2026-10")
        return cls(datetime(int(match[1]), int(match[2]), 1, tzinfo=UTC))

    @classmethod
    def containing(cls, moment: datetime) -> "Month":
        """Return the month that contains a moment."""
        return cls(Period.MONTH.begin(moment))

    @property
    def end(self) -> datetime:
        """The beginning of the next month."""
        return Period.MONTH.end(self.begin)

    @property
    def name(self) -> str:
        """The month as text: `2026-10`."""
        return f"{self.begin:%Y-%m}"

    def over(self, now: datetime) -> bool:
        """Return whether it has ended. Its figures may change for some time after that (`pending_changes`)."""
        return now >= self.end

    def contains(self, moment: datetime) -> bool:
        """Return whether a moment is in the month."""
        return self.begin <= moment < self.end
