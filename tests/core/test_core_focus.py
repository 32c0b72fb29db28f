"""FOCUS rows contain the whole bill, on every cloud."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from cost_helpers import at, compute, end, event, launch, price
from everspot_clouds.aws.invoicing import INVOICING as AWS
from everspot_clouds.gcp.invoicing import INVOICING as GOOGLE
from everspot_core.governance.focus import FocusContext, focus_rows, unpriced
from everspot_core.governance.usage import Sums, usage_rows
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import EventKind, Market
from everspot_core.jobs.visit_records import Visit
from focus_data_toolkit import Mode, convert_to_focus_1_4, lint_focus_1_4_structure


def submission(**fields) -> JobSubmission:
    spec = JobSpec.model_validate({"name": "a", "recipe": "image-classification", "tags": {"Team": "=cmd()"}})
    return JobSubmission(job_id="job-1", spec=spec, submitted_at=at(0), **fields)


def context(invoicing, **fields) -> FocusContext:
    return FocusContext(cluster="c", invoicing=invoicing, account="p-1", as_of=at(9000),
                        submissions={"job-1": submission(**fields)})  # fmt: skip


def zone_rows(zone="us-east-1a"):
    events = {"job-1": [event(EventKind.ASSIGNED, 100, share=1 / 3), event(EventKind.TRAINING, 133)]}
    zone_update = {"zone": zone}
    launches = [
        launch_record.model_copy(update=zone_update) for launch_record in (launch(), launch("i-2", Market.ON_DEMAND, 7))
    ]
    points = [point.model_copy(update=zone_update) for point in (price(0.0377, 0), price(0.0411, 1777))]
    return usage_rows(compute(launches, [end(8000)], points, events, 9000))


@pytest.mark.parametrize(("invoicing", "zone", "names"), [
    (AWS, "us-east-1a", ("AWS", "Amazon Elastic Compute Cloud", "us-east-1", "SpotUsage:m6i.large")),
    (GOOGLE, "us-central1-a", ("Google Cloud", "Compute Engine", "us-central1", "Spot:m6i.large")),
])  # fmt: skip
def test_the_rows_have_each_cloud_s_own_names_and_pass_an_independent_linter(invoicing, zone, names):
    rows = zone_rows(zone)
    exported_rows = focus_rows(rows, context(invoicing))
    spot = next(r for r in exported_rows if r["ResourceId"] == "i-1")
    assert (spot["ProviderName"], spot["ServiceName"], spot["RegionId"], spot["SkuMeter"]) == names
    dataset = convert_to_focus_1_4(exported_rows, mode=Mode.STRICT).datasets["Cost and Usage"]
    report = lint_focus_1_4_structure("Cost and Usage", dataset)
    assert report.ok, report.messages()[:5]


def test_twelve_decimals_lose_less_than_a_millionth_of_a_cent():
    rows = zone_rows()
    exported_rows = focus_rows(rows, context(AWS))
    assert len(exported_rows) + len(unpriced(rows)) == len(rows)
    assert abs(sum(Fraction(r["BilledCost"]) for r in exported_rows) - Sums.sum_rows(rows).cost) < Fraction(1, 10**8)
    assert abs(
        sum(Fraction(r["ConsumedQuantity"]) for r in exported_rows) * 3600 - Sums.sum_rows(rows).seconds
    ) < Fraction(1, 10**6)


def test_what_is_known_in_part_has_a_row_with_that_part_and_says_so():
    """Half an hour of the first hour has no price, the second has none at all, and the third's end is not known."""
    (first, second, third, *_) = zone_rows()
    rows = [
        replace(first, seconds=first.seconds + 1800, unpriced_seconds=Fraction(1800), is_exact=False),
        replace(second, cost=Fraction(0), unpriced_seconds=second.seconds, is_exact=False),
        replace(third, open_ended=True, is_exact=False),
    ]
    exported_rows = focus_rows(rows, context(AWS))
    assert sum(Fraction(r["BilledCost"]) for r in exported_rows) == pytest.approx(Sums.sum_rows(rows).cost, abs=1e-11)
    assert [(r["ResourceId"], r["x_IsLeast"]) for r in exported_rows] == [
        (first.resource, "true"), (third.resource, "true"),
    ]  # fmt: skip
    assert Fraction(exported_rows[0]["ConsumedQuantity"]) * 3600 == pytest.approx(first.seconds, abs=1e-6)
    assert exported_rows[0]["ChargeDescription"].endswith(", at least: no price is known of a part of it")
    assert exported_rows[1]["ChargeDescription"].endswith(", at least: when it ended is not known")
    assert {r["x_IsLeast"] for r in focus_rows(zone_rows(), context(AWS))} == {"false"}
    assert unpriced(rows) == rows[:2]
    dataset = convert_to_focus_1_4(exported_rows, mode=Mode.STRICT).datasets["Cost and Usage"]
    assert lint_focus_1_4_structure("Cost and Usage", dataset).ok


def test_a_visit_s_rows_name_its_home_and_tags_are_text_of_json():
    visit = Visit(home="alpha", job_id="train-7", number=1)
    exported_rows = [r for r in focus_rows(zone_rows(), context(AWS, visit=visit)) if r["x_JobId"]]
    assert {r["x_HomeCluster"] for r in exported_rows} == {"alpha"}
    assert {r["Tags"] for r in exported_rows} == {json.dumps({"Team": "=cmd()"})}


@pytest.mark.parametrize(
    ("invoicing", "account", "payer", "names"),
    [
        (AWS, "123456789012", None, ("123456789012", "123456789012")),
        (AWS, "123456789012", "999999999999", ("999999999999", "123456789012")),
        (AWS, None, None, ("unknown", "unknown")),
        (GOOGLE, "project-1", None, ("unknown", "project-1")),  # a project never is a billing account
        (GOOGLE, "project-1", "01A2B3-C4D5E6-F70819", ("01A2B3-C4D5E6-F70819", "project-1")),
    ],
)
def test_an_account_that_is_not_known_is_called_unknown(invoicing, account, payer, names):
    (row, *_) = focus_rows(zone_rows(), replace(context(invoicing), account=account, payer=payer))
    assert (row["BillingAccountId"], row["SubAccountId"]) == names
