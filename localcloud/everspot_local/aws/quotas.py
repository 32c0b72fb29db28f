"""The quotas of an AWS account that matter to a training fleet: vCPUs by family and market, and VPCs.

The codes, names and default values are those of AWS's pages, and not the product's: "On-Demand Instance quotas" and
"Spot Instance quotas" in the EC2 User Guide, "Amazon VPC quotas" in the VPC User Guide. A new account has 5 standard
vCPUs of each market and no GPU at all. Here the account has what a team is given that asked (`APPLIED`), and a script,
an option or an action of the market sets another figure.
"""

import re

from everspot_core.jobs.records import Market

from everspot_local.market.quotas import Quota, Quotas

_STANDARD = "Standard (A, C, D, H, I, M, R, T, Z)"
_ON_DEMAND = {
    "L-6E869C2A": ("Running On-Demand DL instances", 0),
    "L-74FC7D96": ("Running On-Demand F instances", 0),
    "L-DB2E81BA": ("Running On-Demand G and VT instances", 0),
    "L-F7808C92": ("Running On-Demand HPC instances", 0),
    "L-43DA4232": ("Running On-Demand High Memory instances", 0),
    "L-1945791B": ("Running On-Demand Inf instances", 0),
    "L-417A185B": ("Running On-Demand P instances", 0),
    "L-1216C47A": (f"Running On-Demand {_STANDARD} instances", 5),
    "L-2C3B7624": ("Running On-Demand Trn instances", 0),
    "L-7295265B": ("Running On-Demand X instances", 0),
}
_SPOT = {
    "L-85EED4F7": ("All DL Spot Instance Requests", 0),
    "L-88CF9481": ("All F Spot Instance Requests", 0),
    "L-3819A6DF": ("All G and VT Spot Instance Requests", 0),
    "L-B5D1601B": ("All Inf Spot Instance Requests", 0),
    "L-7212CCBC": ("All P4, P3 and P2 Spot Instance Requests", 0),
    "L-C4BD4855": ("All P5 Spot Instance Requests", 0),
    "L-34B43A08": (f"All {_STANDARD} Spot Instance Requests", 5),
    "L-6B0D517C": ("All Trn Spot Instance Requests", 0),
    "L-E3A00192": ("All X Spot Instance Requests", 0),
}
VPCS = Quota("L-F678F1CE", "vpc", "VPCs per Region", 5)
DEFAULTS = (*(Quota(code, "ec2", name, vcpus) for code, (name, vcpus) in {**_ON_DEMAND, **_SPOT}.items()), VPCS)
"""Every quota with the value of a new account."""
_LARGER = {
    "L-1216C47A": 1152, "L-34B43A08": 1440, "L-DB2E81BA": 768, "L-3819A6DF": 768, "L-417A185B": 768, "L-7212CCBC": 768,
    "L-C4BD4855": 768,
}  # fmt: skip
APPLIED = {code: float(_LARGER.get(code, 128)) for code in (*_ON_DEMAND, *_SPOT)}
"""vCPUs of the local account, by quota code."""

# EC2 User Guide, "Naming conventions": letters of the family, generation, options, a period, the size. A longer name
# goes before its first letter.
_FAMILIES: tuple[tuple[str, str, str | None], ...] = (
    (r"dl\d", "L-6E869C2A", "L-85EED4F7"),
    (r"trn\d", "L-2C3B7624", "L-6B0D517C"),
    (r"inf\d", "L-1945791B", "L-B5D1601B"),
    (r"hpc\d", "L-F7808C92", None),
    (r"u-|u\d", "L-43DA4232", None),
    (r"g[a-z]*\d|vt\d", "L-DB2E81BA", "L-3819A6DF"),
    (r"p5", "L-417A185B", "L-C4BD4855"),
    (r"p\d", "L-417A185B", "L-7212CCBC"),  # AWS's page does not say to which Spot quota P6 counts
    (r"f\d", "L-74FC7D96", "L-88CF9481"),
    (r"x\d", "L-7295265B", "L-E3A00192"),
    (r"(?!mac)[acdhimrtz][a-z]*\d", "L-1216C47A", "L-34B43A08"),
)


def account_quotas(values: dict[str, float] | None = None) -> Quotas:
    """Return an account's quotas. `values`: by quota code, where they differ from what the local account has.

    Raises:
        ValueError: for a code that is unknown or a value below 0.
    """
    return Quotas(DEFAULTS, quota_code, {**APPLIED, **(values or {})})


def quota_code(instance_type: str, market: Market) -> str | None:
    """Return the code of a family's quota; None for a family without one, such as one declared in a script."""
    if "." not in instance_type:
        return None
    for pattern, on_demand, spot in _FAMILIES:
        if re.match(pattern, instance_type):
            return on_demand if market is Market.ON_DEMAND else spot
    return None
