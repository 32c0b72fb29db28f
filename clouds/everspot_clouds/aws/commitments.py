"""AWS's discounts for a commitment: Savings Plans and Reserved Instances.

The rates differ by type, region, term and payment, and AWS publishes them in price lists alone; the figures here are
the largest discounts that AWS names. None of these plans applies to Spot usage.
"""

from datetime import date

from everspot_core.governance.commitments import CommitmentPlan

_AS_OF = date(2026, 11, 23)
_SAVINGS_PLANS = "AWS Savings Plans User Guide, “What are Savings Plans?”"
_RESERVED = "AWS, “How AWS Pricing Works”, Amazon EC2"
_RATES = "aws savingsplans describe-savings-plans-offering-rates"
_RESERVED_RATES = "aws ec2 describe-reserved-instances-offerings"


def _everything(kind: str, region: str) -> str | None:
    return "all of EC2"


def _family(kind: str, region: str) -> str | None:
    return f"{kind.partition('.')[0]} in {region}"


def _type(kind: str, region: str) -> str | None:
    return f"{kind} in {region}"


PLANS = tuple(
    plan
    for years in (1, 3)
    for plan in (
        CommitmentPlan(
            key=f"compute-{years}y", name="Compute Savings Plan", years=years, scope=_everything, at_most=0.66,
            source=_SAVINGS_PLANS, as_of=_AS_OF, rates_at=_RATES,
        ),
        CommitmentPlan(
            key=f"instance-{years}y", name="EC2 Instance Savings Plan", years=years, scope=_family, at_most=0.72,
            source=_SAVINGS_PLANS, as_of=_AS_OF, rates_at=_RATES,
        ),
        CommitmentPlan(
            key=f"reserved-{years}y", name="Standard Reserved Instances", years=years, scope=_type, whole=True,
            at_most=0.72, source=_RESERVED, as_of=_AS_OF, rates_at=_RESERVED_RATES,
        ),
    )
)  # fmt: skip
