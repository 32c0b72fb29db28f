"""Stands in for an account's quotas, as far as a training fleet meets them: vCPUs by family and market, and VPCs.

A new account has 5 standard vCPUs and no GPU at all; here it has what a team is given that asked, and a script, an
option or an action of the market sets another figure.
"""

from dataclasses import dataclass

from everspot_clouds.aws.quotas import QUOTAS, quota_of
from everspot_core.records import Market


@dataclass(frozen=True)
class Quota:
    """One quota and its value in an account that nobody changed."""

    code: str
    service: str
    name: str
    value: float


_VCPUS = {
    "L-1216C47A": 1152, "L-34B43A08": 1440, "L-DB2E81BA": 768, "L-3819A6DF": 768, "L-417A185B": 768, "L-7212CCBC": 768,
    "L-C4BD4855": 768,
}  # fmt: skip
_OTHER_VCPUS = 128
VPCS = Quota("L-F678F1CE", "vpc", "VPCs per Region", 5)
DEFAULTS = (*(Quota(q.code, "ec2", q.name, _VCPUS.get(q.code, _OTHER_VCPUS)) for q in QUOTAS), VPCS)


class Quotas:
    """The account's quotas with their values now.

    Args:
        values: by quota code, where they differ from the defaults.

    Raises:
        ValueError: for a code that is unknown or a value below 0.
    """

    def __init__(self, values: dict[str, float] | None = None) -> None:
        self._known = {quota.code: quota for quota in DEFAULTS}
        self._values: dict[str, float] = {}
        for code, value in (values or {}).items():
            self.set(code, value)

    def set(self, code: str, value: float) -> None:
        """Another value from now on; what runs stays.

        Raises:
            ValueError: for a code that is unknown or a value below 0.
        """
        if code not in self._known:
            raise ValueError(f"unknown quota {code!r}; there are {', '.join(self._known)}")
        if float(value) < 0:
            raise ValueError(f"quota {code} must be at least 0, not {value}")
        self._values[code] = float(value)

    def value(self, quota: Quota) -> float:
        """Its value now."""
        return self._values.get(quota.code, quota.value)

    def of(self, instance_type: str, market: Market) -> Quota | None:
        """The quota that an instance counts towards; None for a family that has none, as one declared in a script."""
        found = quota_of(instance_type, market)
        return None if found is None else self._known[found.code]

    def all(self, service: str) -> list[Quota]:
        """A service's quotas."""
        return [quota for quota in self._known.values() if quota.service == service]
