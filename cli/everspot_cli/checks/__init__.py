"""The checks of `everspot doctor`, each with whose matter it is."""

from dataclasses import asdict, dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a check ended. SKIP: it could not be asked here."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class Check:
    """One check. `group`: whose matter it is: store, credentials, cluster, capacity, quota, clock or user."""

    group: str
    name: str
    verdict: Verdict
    detail: str
    fix: str = ""

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)
