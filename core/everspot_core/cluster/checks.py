"""The result of a check for people, as `everspot doctor` and `everspot preflight` print it."""

from dataclasses import asdict, dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The result of a check. SKIP: it could not be made here."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class Check:
    """One check. `group`: its subject: store, credentials, cluster, capacity, quota, clock or user."""

    group: str
    name: str
    verdict: Verdict
    detail: str
    fix: str = ""

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)
