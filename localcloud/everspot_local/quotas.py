"""Stands in for an account's quotas, as far as a training fleet meets them: vCPUs by family and market, and VPCs.

Codes and names: Service Quotas, `ec2` and `vpc` (https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html).
Which type belongs to which: EC2 User Guide, "Spot Instance quotas" and "On-Demand Instance quotas". A new account has 5
standard vCPUs and no GPU at all; here it has what a team is given that asked, and a script, an option or an action of
the market sets another figure.
"""

import re
from dataclasses import dataclass

from everspot_core.records import Market


@dataclass(frozen=True)
class Quota:
    """One quota. `families`: the letters with which its instance types begin; empty for what counts no vCPUs."""

    code: str
    service: str
    name: str
    value: float
    families: frozenset[str] = frozenset()
    market: Market | None = None


_STANDARD = frozenset("acdhimrtz")
_ROWS: tuple[tuple[str, str, frozenset[str], Market, float], ...] = (
    (
        "L-1216C47A",
        "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        _STANDARD,
        Market.ON_DEMAND,
        1152,
    ),
    ("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", _STANDARD, Market.SPOT, 1440),
    ("L-DB2E81BA", "Running On-Demand G and VT instances", frozenset({"g", "vt"}), Market.ON_DEMAND, 768),
    ("L-3819A6DF", "All G and VT Spot Instance Requests", frozenset({"g", "vt"}), Market.SPOT, 768),
    ("L-417A185B", "Running On-Demand P instances", frozenset({"p"}), Market.ON_DEMAND, 768),
    ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", frozenset({"p"}), Market.SPOT, 768),
    ("L-C4BD4855", "All P5 Spot Instance Requests", frozenset({"p5"}), Market.SPOT, 768),
    ("L-6E869C2A", "Running On-Demand DL instances", frozenset({"dl"}), Market.ON_DEMAND, 96),
    ("L-85EED4F7", "All DL Spot Instance Requests", frozenset({"dl"}), Market.SPOT, 96),
    ("L-74FC7D96", "Running On-Demand F instances", frozenset({"f"}), Market.ON_DEMAND, 96),
    ("L-88CF9481", "All F Spot Instance Requests", frozenset({"f"}), Market.SPOT, 96),
    ("L-1945791B", "Running On-Demand Inf instances", frozenset({"inf"}), Market.ON_DEMAND, 96),
    ("L-B5D1601B", "All Inf Spot Instance Requests", frozenset({"inf"}), Market.SPOT, 96),
    ("L-2C3B7624", "Running On-Demand Trn instances", frozenset({"trn"}), Market.ON_DEMAND, 128),
    ("L-6B0D517C", "All Trn Spot Instance Requests", frozenset({"trn"}), Market.SPOT, 128),
    ("L-7295265B", "Running On-Demand X instances", frozenset({"x"}), Market.ON_DEMAND, 128),
    ("L-E3A00192", "All X Spot Instance Requests", frozenset({"x"}), Market.SPOT, 128),
)
VPCS = Quota("L-F678F1CE", "vpc", "VPCs per Region", 5)
DEFAULTS = (
    *(Quota(code, "ec2", name, value, families, market) for code, name, families, market, value in _ROWS),
    VPCS,
)
_LETTERS = re.compile(r"[a-z]+")
_OF_THEIR_OWN = {"dl", "hpc", "inf", "mac", "trn", "vt"}  # which begin like a standard family and are none


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
        series = instance_type.partition(".")[0]
        letters = _LETTERS.match(series)
        family = letters.group() if letters else "-"
        family = family if family in _OF_THEIR_OWN else family[0]
        wanted = "p5" if market is Market.SPOT and series.startswith("p5") else family
        return next((q for q in self._known.values() if q.market is market and wanted in q.families), None)

    def all(self, service: str) -> list[Quota]:
        """A service's quotas."""
        return [quota for quota in self._known.values() if quota.service == service]
