"""`everspot cost export` writes FOCUS 1.2 that an independent reader accepts, with the report's total."""

import csv
import gzip
import io
import json
from fractions import Fraction
from pathlib import Path

import pytest
from everspot_core.cluster.manifest import Elastic
from everspot_core.costs.ledger import UNKNOWN, EndRecord, LaunchRecord
from everspot_core.jobs.records import JobState, Market
from everspot_core.jobs.visit_records import Trip, TripEnd
from focus_data_toolkit import Mode, convert_to_focus_1_4, detect_focus_schema, lint_focus_1_4_structure
from report_helpers import AS_OF, T0, audit, market_log

MARCH = ("--month", "2026-03")


@pytest.fixture(autouse=True)
def _moment(monkeypatch):
    """Market time stands still at AS_OF, three hours after T0."""
    monkeypatch.setenv("EVERSPOT_CLOCK", f"1e-12@{T0.timestamp() + 3 * 3600:.0f}")


def exported(world, tmp_path, *arguments) -> list[dict[str, str]]:
    path = tmp_path / "focus.csv"
    answer = world.run("export", "focus", *MARCH, "--out", str(path), *arguments)
    assert answer.code == 0, answer.err
    return list(csv.DictReader(io.StringIO(path.read_bytes().decode())))


def billed(rows, **columns) -> Fraction:
    chosen = (r for r in rows if all(r[key] == value for key, value in columns.items()))
    return sum((Fraction(r["BilledCost"]) for r in chosen), Fraction(0))


def linted(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows as FOCUS 1.4, by a converter and a linter that share no code with the export."""
    converted = convert_to_focus_1_4(rows, mode=Mode.STRICT).datasets["Cost and Usage"]
    report = lint_focus_1_4_structure("Cost and Usage", converted)
    assert report.ok, report.messages()[:5]
    return converted


def test_an_independent_reader_takes_it_for_what_it_is(past, tmp_path):
    rows = exported(past, tmp_path)
    detection = detect_focus_schema(tuple(rows[0]))
    assert (detection.dataset, detection.detected_version, detection.confidence) == ("Cost and Usage", "1.2", "HIGH")
    assert (detection.missing_columns, detection.unknown_columns) == ((), ())
    assert detection.score == 1.0
    assert len(linted(rows)) == len(rows) > 20


def test_its_sum_is_that_of_the_report_and_of_the_independent_bill(past, tmp_path):
    rows = exported(past, tmp_path)
    report = past.run("--json", "report").json
    assert report["cost_usd"] > 0
    assert float(billed(rows)) == pytest.approx(report["cost_usd"], abs=1e-6)
    assert float(billed(rows)) == pytest.approx(audit(market_log(past, tmp_path / "log.jsonl"), AS_OF), abs=1e-6)
    for job in report["jobs"]:
        assert float(billed(rows, x_JobId=job["job_id"])) == pytest.approx(job["cost_usd"], abs=1e-6)
    listed = sum(Fraction(r["x_OnDemandCost"]) for r in rows)
    assert float(listed) == pytest.approx(report["on_demand_cost_usd"], abs=1e-6)
    assert float(sum(Fraction(r["x_WaivedCost"]) for r in rows)) == pytest.approx(report["free_usd"], abs=1e-6)


def test_rows_say_who_had_the_instance_and_what_was_lost(past, tmp_path):
    rows = exported(past, tmp_path)
    job_rows = [r for r in rows if r["x_JobId"] == "moved"]
    assert {json.loads(r["Tags"]).get("Team") for r in job_rows} == {"research"}
    assert {(r["ResourceId"], r["x_Attempt"]) for r in job_rows} == {
        ("i-spot1", "1"),
        ("i-spot2", "2"),
        ("i-spot3", "3"),
    }
    # 20 s from the notice to the release, 30 s until training again; then from the checkpoint at 5000 until training at
    # 5340. In this time i-spot2 ran until 5250, and the job had i-spot3 from 5310.
    assert sum(Fraction(r["x_LostSeconds"]) for r in job_rows) == 20 + 30 + 250 + 30
    kinds = {r["x_UsageKind"] for r in rows}
    assert kinds == {"work", "lost", "boot", "idle", "scheduler"}
    assert {r["PricingCategory"] for r in rows if r["ResourceId"] == "i-base"} == {"Standard"}
    assert {r["PricingCategory"] for r in job_rows} == {"Dynamic"}


def test_a_spot_instance_that_was_free_is_billed_with_nothing_and_keeps_its_list_price(world, tmp_path):
    world.launch("i-spot1", 0)
    world.end("i-spot1", 1800, interrupted=True)
    (row,) = exported(world, tmp_path)
    assert (row["BilledCost"], row["ListCost"], row["ListUnitPrice"], row["ContractedUnitPrice"]) == (
        "0", "0.02", "0.04", "0",
    )  # fmt: skip
    assert row["ChargeDescription"].endswith("free: taken by the cloud so soon")


def test_unpriced_instances_have_no_row_and_are_reported(world, tmp_path):
    world.launch("i-base", 0)
    world.store.launches.create(
        "i-odd", LaunchRecord(instance_id="i-odd", instance_type="x9.odd", zone="us-east-1a", market=Market.ON_DEMAND,
                              launched_at=T0),
    )  # fmt: skip
    assert {r["ResourceId"] for r in exported(world, tmp_path)} == {"i-base"}
    answer = world.run("--json", "export", "focus", *MARCH)
    assert answer.json["unpriced"] == [{"resource": "i-odd", "hours": 3.0}]
    assert answer.json["unpriced_hours"] == 3.0
    text_answer = world.run("export", "focus", *MARCH, "--out", str(tmp_path / "a.csv"))
    assert "no price is known of i-odd (3 h): they have no row, and the sum is a lower bound" in text_answer.err


def test_an_instance_of_unknown_length_has_a_row_and_its_sum_is_told_as_a_lower_bound(world, tmp_path):
    world.launch("i-base", 0)
    world.end("i-base", 3600)
    world.launch("i-spot1", 0)
    world.store.ends.create("i-spot1", EndRecord(instance_id="i-spot1", ended_at=T0, interrupted=False, source=UNKNOWN))
    rows = exported(world, tmp_path)
    assert {r["ResourceId"]: r["x_IsLeast"] for r in rows} == {"i-base": "false", "i-spot1": "true"}
    answer = world.run("--json", "export", "focus", *MARCH).json
    assert (answer["known"], answer["unknown_lengths"], answer["unpriced"]) == (False, ["i-spot1"], [])
    assert (float(billed(rows)), len(rows)) == (pytest.approx(answer["cost_usd"], abs=1e-6), answer["count"])
    text_answer = world.run("export", "focus", *MARCH, "--out", str(tmp_path / "a.csv"))
    assert f"{len(rows)} rows of 2026-03, at least $" in text_answer.out
    assert (
        "warning: how long i-spot1 ran is not known: its row has the least that is billed, and the sum is a lower "
        in (" ".join(text_answer.err.split()))
    )


def test_visits_are_rows_that_others_bill_and_copies_are_billed_here(world, tmp_path):
    world.submit("away", 0, tags={"Team": "vision"})
    trip = Trip(cluster="beta", visit="visit-1", number=1, since=T0, until=T0, end=TripEnd.RETURNED, usd=1.5,
                egress_usd=0.25, sent_bytes=5 * 10**9)  # fmt: skip
    from everspot_core.jobs.lease import pending

    world.store.records.put("away", pending("away", T0).model_copy(update={"trips": [trip], "state": JobState.PENDING}))
    rows = {r["x_UsageKind"]: r for r in exported(world, tmp_path)}
    assert {k: (r["BilledCost"], r["x_AbroadCost"]) for k, r in rows.items()} == {
        "abroad": ("0", "1.5"), "egress": ("0.25", "0"),
    }  # fmt: skip
    assert (rows["egress"]["PricingQuantity"], rows["egress"]["PricingUnit"]) == ("5", "GB")
    assert json.loads(rows["egress"]["Tags"]) == {"Team": "vision"}
    assert len(linted(list(rows.values()))) == 2


def test_a_month_has_its_own_hours_only_and_says_whether_it_is_over(past, tmp_path, monkeypatch):
    monkeypatch.setenv("EVERSPOT_CLOCK", f"1e-12@{T0.timestamp() + 31 * 86400:.0f}")  # 1 April, noon
    before = past.run("--json", "export", "focus", *MARCH).json
    assert (before["complete"], before["pending_changes"]) == (False, ["the ledger may lack entries"])
    for iid in ("i-brain", "i-base"):
        past.end(iid, 30.75 * 86400)
    march = past.run("--json", "export", "focus", *MARCH).json
    april = past.run("--json", "export", "focus").json
    assert (march["complete"], march["pending_changes"]) == (True, [])
    assert (march["complete"], april["complete"], april["month"]) == (True, False, "2026-04")
    assert {r["BillingPeriodStart"] for r in march["rows"]} == {"2026-03-01T00:00:00Z"}
    assert {r["BillingPeriodEnd"] for r in march["rows"]} == {"2026-04-01T00:00:00Z"}
    whole = past.run("--json", "report").json["cost_usd"]
    assert march["cost_usd"] + april["cost_usd"] == pytest.approx(whole, abs=2e-6)
    text_answer = past.run("export", "focus", "--out", str(tmp_path / "a.csv.gz"))
    assert "2026-04 is not over: this is up to 2026-04-01 12:00 UTC" in text_answer.err
    with gzip.open(tmp_path / "a.csv.gz", "rt", newline="") as file:
        assert len(list(csv.DictReader(file))) == april["count"]


def test_the_cluster_s_tags_and_account_are_in_every_row_and_a_job_s_win(past, tmp_path):
    manifest = past.store.manifest()
    elastic = Elastic.model_validate(
        {"types": ["m6i.large"], "markets": ["spot"], "max_instances": 1, "template": "lt-1", "template_version": "1",
         "places": {"us-east-1a": "subnet-1"}, "tags": {"Team": "platform", "Project": "p"}, "idle_limit": "5m"},
    )  # fmt: skip
    url = "https://sqs.us-east-1.amazonaws.com/123456789012/queue"
    past.store.write_manifest(manifest.model_copy(update={"elastic": elastic, "queue_url": url}))
    rows = exported(past, tmp_path)
    assert {(r["x_JobId"], r["Tags"]) for r in rows if r["x_JobId"] != "steady"} == {
        ("", '{"Project": "p", "Team": "platform"}'), ("moved", '{"Project": "p", "Team": "research"}'),
    }  # fmt: skip
    assert {(r["BillingAccountId"], r["SubAccountId"]) for r in rows} == {("123456789012", "123456789012")}
    again = exported(past, tmp_path, "--billing-account", "999999999999")
    assert {(r["BillingAccountId"], r["SubAccountId"]) for r in again} == {("999999999999", "123456789012")}


def test_without_a_file_the_table_goes_to_standard_output_with_its_header_even_if_it_is_empty(world, past):
    rows = list(csv.DictReader(io.StringIO(past.run("export", "focus", *MARCH).out)))
    assert len(rows) > 20 and "x_JobId" in rows[0]
    empty = past.run("export", "focus", "--month", "2026-02")
    assert empty.code == 0
    assert empty.out.splitlines() == [",".join(rows[0])]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--month", "2026-3"), "--month: '2026-3' is not a month, such as 2026-10"),
        (("--month", "2026-04"), "--month: 2026-04 has not begun; it is 2026-03-01"),
        (("--out", "a.xlsx"), "--out: a.xlsx has to end with .csv or .csv.gz"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(world, arguments, message):
    answer = world.run("export", "focus", *arguments)
    assert answer.code == 2
    assert message in answer.err
    assert not Path("a.xlsx").exists()


def test_an_unwritable_folder_is_reported(past, tmp_path):
    (tmp_path / "taken").write_text("")
    answer = past.run("export", "focus", *MARCH, "--out", str(tmp_path / "taken" / "a.csv"))
    assert answer.code == 1
    assert "--out:" in answer.err and "cannot be written" in answer.err
