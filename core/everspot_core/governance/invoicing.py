"""How a cloud's own bill speaks of instances, as values, which each cloud's `rules.py` gives."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class BillTable:
    """A table of a cloud's bill: the names of its columns. Times are of the charged period, in UTC.

    Attributes:
        costs: the column of each cost that the table has, by our name of the cost (`billed`, `effective`).
        charges: the categories of FOCUS (Usage, Purchase, Tax, Credit, Adjustment) by the table's own words; empty:
            they are FOCUS's.
        tags: JSON text, or a list of keys and values.
        tags_beside: further columns of tags.
        meters: the columns of the measured quantity; the first that has a value counts.
        committed: a column that has a value where a commitment covers the row.
        committed_words: the values of `charge` that say the same.
        as_of: a column that says up to when everything counts, which clouds' tables lack.
    """

    name: str
    resource: str
    start: str
    end: str
    costs: Mapping[str, str]
    currency: str
    charge: str
    service: str
    tags: str
    meters: tuple[str, ...] = ()
    tags_beside: tuple[str, ...] = ()
    charges: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    correction: str = ""
    committed: str = ""
    committed_words: tuple[str, ...] = ()
    as_of: str = ""

    @property
    def required(self) -> tuple[str, ...]:
        """The columns without which nothing can be compared."""
        return (self.resource, self.start, self.end, self.costs["billed"], self.currency, self.charge)


FOCUS_TABLE = BillTable(
    name="FOCUS",
    resource="ResourceId",
    start="ChargePeriodStart",
    end="ChargePeriodEnd",
    costs=MappingProxyType({"billed": "BilledCost", "effective": "EffectiveCost"}),
    currency="BillingCurrency",
    charge="ChargeCategory",
    service="ServiceName",
    tags="Tags",
    meters=("SkuMeter", "x_UsageType"),
    correction="ChargeClass",
    committed="CommitmentDiscountId",
    as_of="x_AsOf",
)
"""Cost and Usage of the FinOps Open Cost and Usage Specification (FOCUS), 1.0 to 1.2, from any exporter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoicing:
    """The names that a cloud's bill uses, and the rules to read its rows.

    - `provider`, `issuer`: the cloud, and the sender of the invoice.
    - `service`, `transfer`: the services that sell instances and traffic.
    - `billing_account_type`, `sub_account_type`: its words for both.
    - `meters`: of an hour of an instance, on Spot and on-demand; the type follows.
    - `hours`: a pattern of the meters of an instance's time, apart from the meters of its traffic and other things.
    - `resource`: a pattern whose first group is an instance's id in a bill's name of the resource.
    - `account`: a pattern whose first group is the account in the URL of a cluster's queue; empty: it is not in it.
    - `account_pays`: whether an account of instances is a billing account too, unless another one pays for it.
    - `cluster_tag`: the tag of a cluster's instances in a bill. `tag_prefixes`: the prefixes of tags' keys in a bill.
    - `tables`: the tables of its bill, FOCUS's first.
    """

    provider: str
    issuer: str
    service: str
    transfer: str
    billing_account_type: str
    sub_account_type: str
    meters: tuple[str, str]
    hours: str
    resource: str
    account: str
    account_pays: bool
    cluster_tag: str
    tag_prefixes: tuple[str, ...]
    tables: tuple[BillTable, ...]

    def instance_id(self, resource: str) -> str | None:
        """Return the id of the instance that a bill's resource names; None if the resource is something else."""
        match = re.fullmatch(self.resource, resource.strip())
        return match[1] if match is not None else None

    def measures_time(self, meter: str) -> bool:
        """Return whether a row of this meter is an instance's time; yes where the bill does not say."""
        return not meter or re.fullmatch(self.hours, meter) is not None

    def parse_account(self, queue_url: str | None) -> str | None:
        """Return the account that the URL of a cluster's queue names; None if it names none."""
        match = re.match(self.account, queue_url or "") if self.account else None
        return match[1] if match is not None else None

    def tag_key(self, key: str) -> str:
        """Return a tag's key as people wrote it: without the prefix that the bill adds."""
        return next((key.removeprefix(p) for p in self.tag_prefixes if key.startswith(p)), key)
