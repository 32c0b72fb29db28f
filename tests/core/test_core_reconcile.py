"""Reconciliation of the ledger with a bill: matching entries, entries of one side, and excluded entries."""

from fractions import Fraction

import pytest
from cost_helpers import at, launch
from everspot_clouds.aws.invoicing import CUR_2
from everspot_clouds.aws.invoicing import INVOICING as AWS
from everspot_clouds.gcp.invoicing import INVOICING as GOOGLE
from everspot_core.governance.bill_rows import BillRow, UnknownTable, find_table, read_row
from everspot_core.governance.invoicing import FOCUS_TABLE
from everspot_core.governance.month import Month
from everspot_core.governance.reconcile import BillSide, MatchKind, by_tag, reconcile
from everspot_core.governance.usage import UsageKind, UsageRow

HOUR = 3600
CHARGED = {
    "ResourceId": "i-1", "ChargePeriodStart": "2026-03-01T12:00:00Z", "ChargePeriodEnd": "2026-03-01T13:00:00Z",
    "BilledCost": "0.0961234567", "EffectiveCost": "0", "BillingCurrency": "USD", "ChargeCategory": "Usage",
    "ServiceName": "Amazon Elastic Compute Cloud", "SkuMeter": "USE1-SpotUsage:m6i.large", "ChargeClass": "",
    "Tags": '{"user:Team": "vision", "user:everspot:cluster": "c"}', "CommitmentDiscountId": "",
}  # fmt: skip


def read(table=FOCUS_TABLE, invoicing=AWS, **changed) -> BillRow | list[str]:
    row = read_row({**CHARGED, **changed}, table, invoicing)
    return row if isinstance(row, BillRow) else [str(problem) for problem in row]


def test_a_row_of_focus_is_read_with_every_digit():
    row = read()
    assert (row.instance, row.start, row.end, row.cost) == ("i-1", at(0), at(HOUR), Fraction("0.0961234567"))
    assert (row.charge, row.timed, row.correction, row.committed) == ("Usage", True, False, False)
    assert row.tags == {"Team": "vision", "everspot:cluster": "c"}


@pytest.mark.parametrize(
    ("changed", "field", "expected"),
    [
        ({"ResourceId": "arn:aws:ec2:us-east-1:123456789012:instance/i-0abc"}, "instance", "i-0abc"),
        ({"ResourceId": "vol-1"}, "instance", None),
        ({"ResourceId": None}, "resource", ""),
        ({"SkuMeter": "USE1-DataTransfer-Regional-Bytes"}, "timed", False),
        ({"SkuMeter": "CPUCredits:t3"}, "timed", False),
        ({"SkuMeter": "", "x_UsageType": "BoxUsage:m6i.large"}, "meter", "BoxUsage:m6i.large"),
        ({"SkuMeter": ""}, "timed", True),
        ({"ChargeClass": "Correction"}, "correction", True),
        ({"CommitmentDiscountId": "arn:aws:savingsplans::1:sp/1"}, "committed", True),
        ({"BilledCost": "-1.5e-3"}, "cost", Fraction("-0.0015")),
        ({"ChargePeriodStart": "2026-03-01 12:00:00 UTC"}, "start", at(0)),
        ({"ChargePeriodStart": "2026-03-01T12:00:00.000"}, "start", at(0)),
        ({"ChargePeriodStart": "2026-03-01T13:00:00+01:00"}, "start", at(0)),
        ({"Tags": ""}, "tags", {}),
        ({"Tags": "{oops"}, "tags", {}),
        ({"Tags": "[" * 100_000}, "tags", {}),
        ({"Tags": '"text"'}, "tags", {}),
        ({"Tags": [{"Key": "team", "Value": "vision", "x_Inherited": False}]}, "tags", {"team": "vision"}),
    ],
)  # fmt: skip
def test_what_bills_do_in_one_column(changed, field, expected):
    assert getattr(read(**changed), field) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"BilledCost": "NaN"}, "BilledCost: is 'NaN', not a number"),
        ({"BilledCost": "Infinity"}, "BilledCost: is 'Infinity', not a number"),
        ({"BilledCost": ""}, "BilledCost: is '', not a number"),
        ({"BilledCost": "1,5"}, "BilledCost: is '1,5', not a number"),
        ({"BilledCost": "1e999999999"}, "BilledCost: is '1e999999999', not a number"),
        ({"BillingCurrency": "EUR"}, "BillingCurrency: is 'EUR'; the ledger has dollars (USD) only"),
        ({"ChargePeriodStart": "yesterday"}, "ChargePeriodStart: is 'yesterday', not a time"),
        ({"ChargePeriodEnd": "2026-03-01T12:00:00Z"}, "ChargePeriodEnd: has to be after the start"),
        ({"ChargePeriodEnd": "2027-03-01T12:00:00Z"}, "ChargePeriodEnd: has to be after the start, by a month at most"),
    ],
)
def test_what_cannot_be_read_is_told_by_column(changed, expected):
    (problem,) = read(**changed)
    assert problem.startswith(expected)


def test_a_row_says_everything_that_is_wrong_with_it_at_once():
    assert len(read(BilledCost="x", BillingCurrency="EUR", ChargePeriodStart="x", ChargePeriodEnd="x")) == 4


def test_cur_2_is_read_by_its_own_names():
    row = read_row(
        {
            "line_item_resource_id": "i-0abc", "line_item_usage_start_date": "2026-03-01T12:00:00.000Z",
            "line_item_usage_end_date": "2026-03-01T13:00:00.000Z", "line_item_unblended_cost": "0.05",
            "line_item_currency_code": "USD", "line_item_line_item_type": "SavingsPlanCoveredUsage",
            "line_item_product_code": "AmazonEC2", "line_item_usage_type": "BoxUsage:m6i.large",
            "resource_tags": '{"user_team": "vision"}',
        }, CUR_2, AWS,
    )  # fmt: skip
    assert isinstance(row, BillRow)
    assert (row.charge, row.committed, row.tags, row.cost) == ("Usage", True, {"team": "vision"}, Fraction("0.05"))


def test_google_s_rows_name_an_instance_by_its_number_and_its_traffic_apart():
    instance_columns = {
        "ResourceId": "//compute.googleapis.com/projects/7/zones/us-central1-a/instances/123",
        "SkuMeter": "",
    }
    core = read(
        invoicing=GOOGLE,
        table=GOOGLE.tables[0],
        **instance_columns,
        ChargeDescription="Spot N2 Instance Core in Iowa",
        x_Labels=[{"key": "everspot-cluster", "value": "c"}],
        Tags=[],
    )
    assert (core.instance, core.timed, core.tags) == ("123", True, {"everspot-cluster": "c"})
    for charge in ("Network Internet Egress", "Licensing Fee for Ubuntu Pro (CPU cost)", "Storage PD Snapshot"):
        row = read(invoicing=GOOGLE, table=GOOGLE.tables[0], **instance_columns, ChargeDescription=charge)
        assert (row.instance, row.timed) == ("123", False), charge


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            [c for c in CHARGED if c != "ResourceId"],
            "lacks the columns ResourceId of FOCUS (read are",
        ),
        (["a", "b"], "has none of the columns of FOCUS or CUR 2.0"),
        ([*CHARGED, "Tags"], "has the columns Tags more than once"),
        (
            [c for c in CUR_2.required if c != "line_item_resource_id"],
            "lacks the columns line_item_resource_id of CUR",
        ),
    ],
)
def test_a_table_that_is_not_known_is_told_by_what_it_lacks(columns, expected):
    with pytest.raises(UnknownTable) as caught:
        find_table(columns, AWS)
    assert expected in str(caught.value)


def used(resource: str, seconds: float, cost, **fields) -> UsageRow:
    launch_record = launch(resource)
    return UsageRow(
        hour=at(seconds), kind=UsageKind.WORK, resource=resource, launch=launch_record, cost=Fraction(cost), **fields
    )


def bill(*rows: BillRow | list[str], instance_ids=("i-1", "i-2", "i-3", "i-4")) -> BillSide:
    side = BillSide(
        month=Month.parse("2026-03"), instance_ids=frozenset(instance_ids), cluster="c", cluster_tag="everspot:cluster"
    )
    for row in rows:
        assert isinstance(row, BillRow), row
        side.take(row)
    return side


def charged(resource: str, seconds: float, cost, length=HOUR, **changed) -> BillRow:
    row = read(ResourceId=resource, BilledCost=str(cost), ChargePeriodStart=at(seconds).isoformat(),
               ChargePeriodEnd=at(seconds + length).isoformat(), **changed)  # fmt: skip
    assert isinstance(row, BillRow), row
    return row


def test_both_sides_are_joined_by_instance_and_hour():
    ledger_rows = [
        used("i-1", 0, 1), used("i-1", 0, 2), used("i-1", HOUR, 4), used("i-2", 0, 5),
        used("i-3", 0, 0, is_exact=False), used("i-4", 0, 0, free=True), used("i-1", 3 * HOUR, 7),
    ]  # fmt: skip
    bill_side = bill(charged("i-1", 0, 2), charged("i-1", 0, "0.5"), charged("i-1", HOUR, 4), charged("i-3", 0, 6),
                  charged("i-9", 2 * HOUR, 8), charged("i-77", 0, 9, Tags=""))  # fmt: skip
    reconciliation = reconcile(ledger_rows, bill_side)
    assert [(p.resource, p.ledger_usd, p.bill_usd, p.match) for p in reconciliation.pairs] == [
        ("i-1", 3, Fraction("2.5"), MatchKind.BOTH),
        ("i-2", 5, 0, MatchKind.HERE),
        ("i-3", 0, 6, MatchKind.UNPRICED),
        ("i-1", 4, 4, MatchKind.BOTH),
        ("i-9", 0, 8, MatchKind.THERE),
        ("i-1", 7, 0, MatchKind.NOT_YET),
    ]
    assert (reconciliation.free, reconciliation.ledger_usd, reconciliation.bill_usd) == (1, 12, Fraction("20.5"))
    assert reconciliation.gap == Fraction("0.5") + 5 + 6 + 8
    assert (bill_side.elsewhere.rows, bill_side.elsewhere.usd) == (1, 9)


def test_what_is_no_time_of_instances_is_counted_by_what_it_is():
    bill_side = bill(
        charged("i-1", 0, 1),
        charged("i-1", 0, 2, SkuMeter="DataTransfer-Out-Bytes"),
        charged("vol-1", 0, 3),
        charged("vol-2", 0, 4, Tags=""),
        charged("", 0, -5, ChargeCategory="Credit"),
        charged("", 0, 6, ChargeCategory="Tax"),
        charged("i-1", 0, 7, ChargeCategory="Wonder"),
        charged("i-1", -86_400 * 2, 8),
        charged("i-2", 0, -1, ChargeClass="Correction"),
        charged("i-2", HOUR, 0, CommitmentDiscountId="sp-1"),
    )
    assert {k: c.usd for k, c in bill_side.other_services.items()} == {
        "DataTransfer-Out-Bytes": 2, "Amazon Elastic Compute Cloud": 3,
    }  # fmt: skip
    assert {k: c.usd for k, c in bill_side.other_charges.items()} == {"Credit": -5, "Tax": 6, "Wonder": 7}
    assert {k: c.usd for k, c in bill_side.other_months.items()} == {"2026-02": 8}
    assert (bill_side.elsewhere.usd, bill_side.corrections.usd, bill_side.committed.rows) == (4, -1, 1)
    assert dict(bill_side.costs) == {("i-1", at(0)): 1, ("i-2", at(0)): -1, ("i-2", at(HOUR)): 0}


def test_the_newest_hour_of_a_month_that_is_not_over_is_not_compared_unless_the_bill_says_up_to_when_it_counts():
    ledger_rows = [used("i-1", 0, 1), used("i-1", HOUR, 4), used("i-2", HOUR, 4), used("i-1", 2 * HOUR, 4)]
    whole, newest = charged("i-1", 0, 1), charged("i-1", HOUR, 2)
    reconciliation = reconcile(ledger_rows, bill(whole, newest), over=False)
    assert [pair.match for pair in reconciliation.pairs] == [
        MatchKind.BOTH,
        MatchKind.NOT_WHOLE,
        MatchKind.NOT_WHOLE,
        MatchKind.NOT_YET,
    ]
    assert (reconciliation.ledger_usd, reconciliation.bill_usd, reconciliation.gap) == (1, 1, 0)
    assert reconcile(ledger_rows, bill(whole, newest)).gap == 2 + 4  # of a month that is over, all counts
    stated = bill(charged("i-1", 0, 1, x_AsOf="2026-03-01T13:30:00Z"), charged("i-1", HOUR, 2))
    assert stated.as_of == at(1.5 * HOUR)
    assert reconcile(ledger_rows, stated, over=False).gap == 2 + 4


def test_what_states_the_moment_of_a_bill_has_to_be_a_time():
    (problem,) = read(x_AsOf="soon")
    assert problem.startswith("x_AsOf: is 'soon', not a time")


def test_a_bill_by_days_is_compared_by_days():
    ledger_rows = [used("i-1", 0, 1), used("i-1", 11 * HOUR, 2), used("i-1", 12 * HOUR, 4)]
    reconciliation = reconcile(
        ledger_rows, bill(charged("i-1", -12 * HOUR, 3, 86_400), charged("i-1", 12 * HOUR, 4, 86_400))
    )
    assert reconciliation.step == "day"
    assert [(p.ledger_usd, p.bill_usd) for p in reconciliation.pairs] == [(3, 3), (4, 4)]


def test_a_shift_between_two_hours_is_no_gap_but_two_instances_do_not_make_up_for_each_other():
    shifted = reconcile([used("i-1", 0, 1), used("i-1", HOUR, 2)], bill(charged("i-1", 0, 2), charged("i-1", HOUR, 1)))
    swapped = reconcile([used("i-1", 0, 1), used("i-2", 0, 2)], bill(charged("i-1", 0, 2), charged("i-2", 0, 1)))
    assert (shifted.gap, swapped.gap) == (0, 2)
    assert shifted.ledger_usd - shifted.bill_usd == swapped.ledger_usd - swapped.bill_usd == 0


def test_differences_by_the_bill_s_tags_add_up():
    bill_side = bill(charged("i-1", 0, 2), charged("i-2", 0, 2, Tags='{"user_team": "speech"}'),
                  charged("i-4", 0, 1, Tags=""))  # fmt: skip
    reconciliation = reconcile([used("i-1", 0, 1), used("i-2", 0, 5), used("i-3", 0, 1)], bill_side)
    lines = by_tag(reconciliation, bill_side, "Team")
    assert [(line.value, line.billed, line.ledger_usd, line.bill_usd, line.resources) for line in lines] == [
        ("speech", True, 5, 2, 1), ("", False, 1, 0, 1), ("", True, 0, 1, 1), ("vision", True, 1, 2, 1),
    ]  # fmt: skip
    assert sum(line.ledger_usd - line.bill_usd for line in lines) == reconciliation.ledger_usd - reconciliation.bill_usd
