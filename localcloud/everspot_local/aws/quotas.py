"""The quotas of an AWS account that matter to a training fleet: vCPUs by family and market, and VPCs.

A new account has 5 standard vCPUs and no GPU at all; here it has what a team is given that asked, and a script, an
option or an action of the market sets another figure.
"""

from everspot_clouds.aws.quotas import QUOTAS, find_quota
from everspot_core.records import Market

from everspot_local.market.quotas import Quota, Quotas

_VCPUS = {
    "L-1216C47A": 1152, "L-34B43A08": 1440, "L-DB2E81BA": 768, "L-3819A6DF": 768, "L-417A185B": 768, "L-7212CCBC": 768,
    "L-C4BD4855": 768,
}  # fmt: skip
_OTHER_VCPUS = 128
VPCS = Quota("L-F678F1CE", "vpc", "VPCs per Region", 5)
DEFAULTS = (*(Quota(q.code, "ec2", q.name, _VCPUS.get(q.code, _OTHER_VCPUS)) for q in QUOTAS), VPCS)


def account_quotas(values: dict[str, float] | None = None) -> Quotas:
    """Return an account's quotas. `values`: by quota code, where they differ from the defaults.

    Raises:
        ValueError: for a code that is unknown or a value below 0.
    """
    return Quotas(DEFAULTS, _quota_code, values)


def _quota_code(instance_type: str, market: Market) -> str | None:
    """Return the code of a family's quota; None for a family without one, such as one declared in a script."""
    quota = find_quota(instance_type, market)
    return None if quota is None else quota.code
