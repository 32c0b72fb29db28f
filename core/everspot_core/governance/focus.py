"""The ledger's rows as FOCUS 1.2, the FinOps Open Cost and Usage Specification: all columns of "Cost and Usage".

A row is one kind of use of one instance in one hour, so that each row has the tags of the job that had the instance.
Costs are dollars with twelve decimals. Columns that begin with `x_` are ours. Use without a known price has no row,
because the specification has no word for an unknown cost, and 0 would be wrong: `unpriced` lists it. Use whose cost is
known in part has a row with that part, which says so (`x_IsLeast`). So the rows add up to the reported costs.

Visits to other clusters are billed by their host. Here they have rows with `BilledCost` 0 and the host's amount in
`x_AbroadCost`, so that the exports of several clusters count no dollar twice.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from types import MappingProxyType

from everspot_core.capacity.catalogue import zone_region
from everspot_core.capacity.market import Market
from everspot_core.costs.prices import HOUR
from everspot_core.governance.invoicing import Invoicing
from everspot_core.governance.month import Month
from everspot_core.governance.usage import UsageKind, UsageRow
from everspot_core.jobs.job import JobSubmission

PLACES = 12
"""Decimals of costs, prices and quantities."""
UNKNOWN_ACCOUNT = "unknown"
"""Stands for an account that the cluster does not know."""
_NULL = ""
_UNIT = 10**PLACES
_COMMITMENT = ("Category", "Id", "Name", "Quantity", "Status", "Type", "Unit")
_PRICING = ("ContractedUnitPrice", "EffectiveCost", "ListUnitPrice")
_WORDS = {
    UsageKind.WORK: "work",
    UsageKind.LOST: "time lost to interruptions",
    UsageKind.BOOT: "boot",
    UsageKind.IDLE: "idle",
    UsageKind.DRAIN: "drain",
    UsageKind.SHARED: "unused share",
    UsageKind.SCHEDULER: "scheduler",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusContext:
    """The common columns of all rows.

    Attributes:
        account: the account of the instances; None if it is unknown.
        payer: the billing account, if it is known.
        tags: the tags of the cluster's instances; a job's own tags win over them.
        as_of: the moment up to which everything counts.
    """

    cluster: str
    invoicing: Invoicing
    account: str | None
    payer: str | None = None
    as_of: datetime
    submissions: Mapping[str, JobSubmission]
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def sub_account(self) -> str:
        """The account of the instances, as rows name it."""
        return self.account or UNKNOWN_ACCOUNT

    @property
    def billing_account(self) -> str:
        """The account that pays, as rows name it."""
        return self.payer or (self.sub_account if self.invoicing.account_pays else UNKNOWN_ACCOUNT)


def focus_rows(rows: Iterable[UsageRow], context: FocusContext) -> list[dict[str, str]]:
    """Return one dictionary a row, of all columns in FOCUS's order; empty text is null."""
    return [_row(row, context) for row in rows if row.is_exact or row.cost or row.waived]


def unpriced(rows: Iterable[UsageRow]) -> list[UsageRow]:
    """Return the rows without a known price for all of their time, and the visits without a known bill."""
    return [row for row in rows if row.unpriced_seconds or (row.launch is None and not row.is_exact)]


def _row(row: UsageRow, context: FocusContext) -> dict[str, str]:
    columns = {
        **_accounts(row, context),
        **_charge(row, context),
        **_money(row),
        **_service(row, context),
        **_place(row),
        **{f"CommitmentDiscount{part}": _NULL for part in _COMMITMENT},
        "CapacityReservationId": _NULL,
        "CapacityReservationStatus": _NULL,
        "Tags": json.dumps({**context.tags, **_tags(row, context)}, sort_keys=True, ensure_ascii=False),
    }
    return {**dict(sorted(columns.items())), **_own(row, context)}


def _accounts(row: UsageRow, context: FocusContext) -> dict[str, str]:
    month = Month.containing(row.hour)
    return {
        "ProviderName": context.invoicing.provider,
        "PublisherName": context.invoicing.provider,
        "InvoiceIssuerName": context.invoicing.issuer,
        "InvoiceId": _NULL,
        "BillingAccountId": context.billing_account,
        "BillingAccountName": _NULL,
        "BillingAccountType": context.invoicing.billing_account_type,
        "BillingCurrency": "USD",
        "BillingPeriodStart": _stamp(month.begin),
        "BillingPeriodEnd": _stamp(month.end),
        "SubAccountId": context.sub_account,
        "SubAccountName": _NULL,
        "SubAccountType": context.invoicing.sub_account_type,
    }


def _charge(row: UsageRow, context: FocusContext) -> dict[str, str]:
    return {
        "ChargeCategory": "Usage",
        "ChargeClass": _NULL,
        "ChargeDescription": _described(row, context),
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": _stamp(row.hour),
        "ChargePeriodEnd": _stamp(row.hour + timedelta(hours=1)),
    }


def _described(row: UsageRow, context: FocusContext) -> str:
    if row.launch is None:
        subject = "Data copied for a visit" if row.kind is UsageKind.EGRESS else "A visit, billed by its host,"
        return f"{subject} of {row.job_id} to another cluster"
    market = "Spot" if row.launch.market is Market.SPOT else "On-demand"
    free = ", free: taken by the cloud so soon" if row.free else ""
    return f"{market} {row.launch.instance_type} in {row.launch.zone}: {_WORDS[row.kind]}{free}{_least(row)}"


def _least(row: UsageRow) -> str:
    """Return why the row's cost is a lower bound."""
    ended = ["when it ended is not known"] if row.open_ended else []
    priced = ["no price is known of a part of it"] if row.unpriced_seconds else []
    return "" if row.is_exact else f", at least: {' and '.join([*ended, *priced])}"


def _money(row: UsageRow) -> dict[str, str]:
    """Return the columns of costs, prices and quantities. Time that the cloud waived is billed with 0, and keeps its
    list cost."""
    cost = Fraction(0) if row.kind is UsageKind.ABROAD else row.cost
    listed = cost + row.waived
    quantity, unit = _quantity(row)
    spot = row.launch is not None and row.launch.market is Market.SPOT
    billed, amount = _decimal(cost), _decimal(quantity)
    return {
        "BilledCost": billed,
        "EffectiveCost": billed,
        "ContractedCost": billed,
        "ListCost": _decimal(listed),
        "ListUnitPrice": _decimal(listed / quantity if quantity else listed),
        "ContractedUnitPrice": _decimal(cost / quantity if quantity else cost),
        "PricingCategory": "Dynamic" if spot else "Standard",
        "PricingQuantity": amount,
        "PricingUnit": unit,
        "PricingCurrency": "USD",
        **{f"PricingCurrency{name}": _NULL for name in _PRICING},
        "ConsumedQuantity": amount,
        "ConsumedUnit": unit,
    }


def _quantity(row: UsageRow) -> tuple[Fraction, str]:
    if row.kind is UsageKind.EGRESS:
        # Earlier releases did not record the copied bytes.
        return (row.gigabytes, "GB") if row.gigabytes else (Fraction(1), "Visits")
    return (
        (Fraction(1), "Visits")
        if row.kind is UsageKind.ABROAD
        else ((row.seconds - row.unpriced_seconds) / HOUR, "Hours")
    )


def _service(row: UsageRow, context: FocusContext) -> dict[str, str]:
    invoicing, launch = context.invoicing, row.launch
    if launch is None:
        moved = row.kind is UsageKind.EGRESS
        sku = "data-transfer" if moved else "visit"
        return {
            "ServiceName": invoicing.transfer if moved else "Everspot federation",
            "ServiceCategory": "Networking" if moved else "Multicloud",
            "ServiceSubcategory": "Other (Networking)" if moved else "Multicloud Integration",
            "SkuId": sku,
            "SkuMeter": sku,
            "SkuPriceId": sku,
            "SkuPriceDetails": _NULL,
        }
    spot = launch.market is Market.SPOT
    return {
        "ServiceName": invoicing.service,
        "ServiceCategory": "Compute",
        "ServiceSubcategory": "Virtual Machines",
        "SkuId": launch.instance_type,
        "SkuMeter": f"{invoicing.meters[0 if spot else 1]}:{launch.instance_type}",
        "SkuPriceId": f"{launch.instance_type}/{launch.market.value}/{launch.zone}",
        "SkuPriceDetails": _NULL,
    }


def _place(row: UsageRow) -> dict[str, str]:
    zone = row.launch.zone if row.launch is not None else _NULL
    try:
        region = zone_region(zone) if zone else _NULL
    except ValueError:
        region = zone
    return {
        "ResourceId": row.resource,
        "ResourceName": _NULL,
        "ResourceType": "Instance" if row.launch is not None else "Visit",
        "RegionId": region,
        "RegionName": region,
        "AvailabilityZone": zone,
    }


def _tags(row: UsageRow, context: FocusContext) -> dict[str, str]:
    submission = context.submissions.get(row.job_id or "")
    return dict(submission.spec.tags) if submission is not None else {}


def _own(row: UsageRow, context: FocusContext) -> dict[str, str]:
    submission = context.submissions.get(row.job_id or "")
    home = submission.visit.home if submission is not None and submission.visit is not None else _NULL
    return {
        "x_Cluster": context.cluster,
        "x_UsageKind": row.kind.value,
        "x_JobId": row.job_id or _NULL,
        "x_Attempt": str(row.epoch) if row.epoch is not None else _NULL,
        "x_IsLeast": str(not row.is_exact).lower(),
        "x_HomeCluster": home,
        "x_LostSeconds": _decimal(row.seconds if row.kind is UsageKind.LOST else Fraction(0)),
        "x_OnDemandCost": _decimal(row.on_demand_cost),
        "x_WaivedCost": _decimal(row.waived),
        "x_AbroadCost": _decimal(row.cost if row.kind is UsageKind.ABROAD else Fraction(0)),
        # To the microsecond, so that what is compared with it is cut at the very moment.
        "x_AsOf": context.as_of.isoformat().replace("+00:00", "Z"),
    }


def _decimal(amount: Fraction) -> str:
    """Return the amount rounded half up, as bills do; never negative. In whole numbers, because a month has a hundred
    thousand rows."""
    above, below = amount.numerator, amount.denominator
    whole, fraction_digits = divmod((2 * above * _UNIT + below) // (2 * below), _UNIT)
    return f"{whole}.{fraction_digits:0{PLACES}d}".rstrip("0") if fraction_digits else str(whole)


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
