"""`everspot cost reconcile`: the ledger compared with bills in the clouds' export formats, and malformed files."""

import csv
import gzip
import io
import json
from contextlib import redirect_stdout
from datetime import datetime
from pathlib import Path

import pytest
from focus_data_toolkit.cli import main as toolkit
from report_helpers import T0

MARCH = ("--month", "2026-03")
CUR = ("line_item_resource_id", "line_item_usage_start_date", "line_item_usage_end_date", "line_item_unblended_cost",
       "line_item_currency_code", "line_item_line_item_type", "line_item_product_code", "line_item_usage_type",
       "resource_tags")  # fmt: skip


@pytest.fixture(autouse=True)
def _moment(monkeypatch):
    monkeypatch.setenv("EVERSPOT_CLOCK", f"1e-12@{T0.timestamp() + 3 * 3600:.0f}")


@pytest.fixture
def own(past, tmp_path) -> list[dict[str, str]]:
    """The ledger's own export: a bill that agrees with it."""
    return list(csv.DictReader(io.StringIO(past.run("export", "focus", *MARCH).out)))


def written(path: Path, rows: list[dict[str, str]]) -> Path:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def compared(world, *files, code=0, arguments=()):
    answer = world.run("--json", "reconcile", *map(str, files), *MARCH, *arguments)
    assert answer.code == code, answer.err
    return answer.json


def hours(document) -> dict[str, int]:
    """Return the number of instance hours of each kind."""
    sorts = ("both", "only_here", "only_there", "unpriced_here", "not_billed_yet")
    return {name: document[name]["count"] for name in sorts if document[name]["count"]}


def test_a_bill_that_agrees_has_no_gap(past, own, tmp_path):
    document = compared(past, written(tmp_path / "bill.csv", own))
    report = past.run("--json", "report").json
    assert document["here_usd"] == document["there_usd"] == report["cost_usd"]
    assert (document["gap_usd"], document["within_tolerance"], document["step"], document["tables"]) == (
        0,
        True,
        "hour",
        ["FOCUS"],
    )
    assert hours(document) == {"both": len({(row["ResourceId"], row["ChargePeriodStart"]) for row in own})}
    assert document["by_tag"]["Team"][0]["difference_usd"] == 0


def test_an_export_of_an_unfinished_hour_is_compared_up_to_its_own_moment(past, tmp_path, monkeypatch):
    # i-base and i-brain run on: twenty minutes after the export the ledger has more of the hour that it was made in.
    monkeypatch.setenv("EVERSPOT_CLOCK", f"1e-12@{T0.timestamp() + 2.5 * 3600:.0f}")
    path = tmp_path / "bill.csv"
    path.write_text(past.run("export", "focus", *MARCH).out)
    monkeypatch.setenv("EVERSPOT_CLOCK", f"1e-12@{T0.timestamp() + 2.5 * 3600 + 1200:.0f}")
    document = compared(past, path)
    assert document["gap_usd"] == 0 and document["bill_as_of"].startswith("2026-03-01T14:30:00")
    assert document["here_usd"] == document["there_usd"] > 0
    answer = past.run("reconcile", str(path), *MARCH)
    assert "2026-03-01 14:30:00 UTC, as the bill says" in answer.out

    cut = list(csv.DictReader(io.StringIO(path.read_text())))
    document = compared(past, written(tmp_path / "cur.csv", as_cur(cut)))  # a cloud's table does not say the moment
    assert document["gap_usd"] == pytest.approx(0, abs=1e-6)
    assert document["not_whole_yet"]["count"] > 0 and document["bill_as_of"] is None
    answer = past.run("reconcile", str(tmp_path / "cur.csv"), *MARCH)
    assert "in the bill's newest hour, not whole yet" in answer.out


def as_cur(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The same in AWS's own table: a row for each instance and hour."""
    hours: dict[tuple[str, str], float] = {}
    for row in rows:
        key = row["ResourceId"], row["ChargePeriodStart"]
        hours[key] = hours.get(key, 0.0) + float(row["BilledCost"])
    return [
        dict(zip(CUR, (resource, start.replace("Z", ".000Z"), start.replace(":00:00Z", ":59:59.000Z"), f"{cost:.10f}",
                       "USD", "Usage", "AmazonEC2", "BoxUsage:m6i.large", '{"user_team": "vision"}'), strict=True))
        for (resource, start), cost in hours.items()
    ]  # fmt: skip


def test_cur_2_compressed_and_in_parts_is_read_with_what_it_has_beside(past, own, tmp_path):
    rows = as_cur(own)
    tax = rows[0] | {"line_item_resource_id": "", "line_item_line_item_type": "Tax", "line_item_unblended_cost": "0.5"}
    credit = tax | {"line_item_line_item_type": "Credit", "line_item_unblended_cost": "-0.25"}
    stranger = rows[0] | {"line_item_resource_id": "i-0ther"}
    files = [
        written(tmp_path / "1.csv.gz", [*rows[:5], tax, credit]),
        written(tmp_path / "2.csv.gz", [*rows[5:], stranger]),
    ]
    document = compared(past, *files)
    assert (document["gap_usd"], document["tables"]) == (pytest.approx(0, abs=1e-6), ["CUR 2.0"])
    assert {name: charge["usd"] for name, charge in document["other_charges"].items()} == {"Tax": 0.5, "Credit": -0.25}
    assert document["elsewhere"]["rows"] == 1
    again = compared(past, *files, files[0])
    assert (again["repeated_rows"], again["gap_usd"]) == (5, document["gap_usd"])


def test_json_lines_may_leave_out_what_has_no_value(past, own, tmp_path):
    path = tmp_path / "bill.jsonl"
    first = own[0] | {"ResourceId": "", "ChargeCategory": "Tax"}
    lines = [{k: v for k, v in row.items() if v} | {"Tags": [{"Key": "team", "Value": "v"}]} for row in (first, *own)]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    document = compared(past, path)
    assert (document["gap_usd"], document["other_charges"]["Tax"]["rows"]) == (0, 1)
    assert {line["value"] for line in document["by_tag"]["Team"]} == {"v"}


@pytest.mark.parametrize("vendor", ["aws", "gcp"])
def test_bills_that_somebody_else_has_made_up_are_read_without_a_fault(past, own, tmp_path, vendor):
    with redirect_stdout(io.StringIO()):
        assert toolkit(f"generate --provider {vendor} --focus-version 1.2 --rows 60 --out {tmp_path}".split()) == 0
    (path,) = tmp_path.glob("focus_1_2_*.csv")
    document = compared(past, path, written(tmp_path / "own.csv", own))
    assert (document["gap_usd"], document["rows"]) == (0, 60 + len(own))
    assert sum(entry["rows"] for entry in document["other_months"].values()) == 60
    month = next(iter(document["other_months"]))
    assert past.run("reconcile", str(path), "--month", month).code == 2  # it has not begun


def test_a_month_without_instances_on_either_side_says_so(world, past, tmp_path):
    cells = ROW.replace("i-base", "vol-1").replace("2026-03", "2026-02").split(",")
    path = written(tmp_path / "bill.csv", [dict(zip(HEADER.split(","), cells, strict=True))])
    answer = past.run("reconcile", str(path), "--month", "2026-02")
    assert answer.code == 0
    assert "Neither side has time of instances in 2026-02: nothing was compared." in answer.out


def test_a_missing_instance_and_one_too_many_are_named_and_do_not_make_up_for_each_other(past, own, tmp_path):
    cluster = json.dumps({"user:everspot:cluster": "test", "user:Team": "vision"})
    rows = [row for row in own if row["ResourceId"] != "i-spot3"]
    base = next(row for row in own if row["ResourceId"] == "i-base")
    rows.append(base | {"ResourceId": "i-left", "BilledCost": "0.125", "Tags": cluster})
    path = written(tmp_path / "bill.csv", rows)
    document = compared(past, path, code=1)
    assert {row["resource"] for row in document["only_here"]["largest"]} == {"i-spot3"}
    assert [row["resource"] for row in document["only_there"]["largest"]] == ["i-left"]
    missing = sum(float(row["BilledCost"]) for row in own if row["ResourceId"] == "i-spot3")
    assert document["gap_usd"] == pytest.approx(missing + 0.125, abs=1e-6)
    assert document["difference_usd"] == pytest.approx(missing - 0.125, abs=1e-6)
    assert compared(past, path, arguments=("--tolerance", "99"))["within_tolerance"]
    answer = past.run("reconcile", str(path), *MARCH)
    assert answer.code == 1
    assert "only in the ledger" in answer.out and "only in the bill" in answer.out and "i-left" in answer.out
    assert "more than the tolerance of 1 %" in answer.out


def test_hours_later_than_the_bill_are_not_missing(past, own, tmp_path):
    rows = [row for row in own if row["ChargePeriodStart"] < "2026-03-01T14"]
    document = compared(past, written(tmp_path / "bill.csv", rows))
    assert (document["gap_usd"], document["only_here"]["count"]) == (0, 0)
    assert document["not_billed_yet"]["count"] > 0 and document["billed_until"] == "2026-03-01T14:00:00Z"


def test_in_a_month_that_has_settled_a_bill_that_is_cut_off_is_a_gap(past, own, tmp_path, monkeypatch):
    path = written(tmp_path / "bill.csv", [row for row in own if row["ChargePeriodStart"] < "2026-03-01T14"])
    for day, code in (("2026-04-05T23:59", 0), ("2026-04-06T00:00", 1)):
        moment = datetime.fromisoformat(f"{day}+00:00").timestamp()
        monkeypatch.setenv("EVERSPOT_CLOCK", f"1e-12@{moment:.0f}")
        document = compared(past, path, code=code)
        assert bool(document["not_billed_yet"]["count"]) is (code == 0)
        assert bool(document["only_here"]["count"]) is (code == 1)


def test_equal_rows_of_one_file_count_and_a_file_that_is_passed_again_does_not(past, own, tmp_path):
    halves = [row | {"BilledCost": str(float(row["BilledCost"]) / 2)} for row in own for _ in range(2)]
    path = written(tmp_path / "bill.csv", halves)
    document = compared(past, path)
    assert (document["repeated_rows"], document["gap_usd"]) == (0, pytest.approx(0, abs=1e-5))
    again = compared(past, path, path)
    assert (again["repeated_rows"], again["gap_usd"]) == (len(halves), document["gap_usd"])


def test_the_effective_cost_is_compared_where_the_bill_has_one(past, own, tmp_path):
    rows = [row | {"EffectiveCost": str(2 * float(row["EffectiveCost"]))} for row in own]
    path = written(tmp_path / "bill.csv", rows)
    assert compared(past, path)["gap_usd"] == 0
    document = compared(past, path, code=1, arguments=("--cost", "effective"))
    assert document["there_usd"] == pytest.approx(2 * document["here_usd"], abs=1e-5)
    answer = past.run("reconcile", str(written(tmp_path / "cur.csv", as_cur(own))), *MARCH, "--cost", "effective")
    assert answer.code == 2
    assert "--cost: CUR 2.0 has no effective cost; it has billed" in answer.err


def test_everything_that_is_wrong_is_told_by_line_and_nothing_is_compared(past, own, tmp_path):
    rows = [dict(row) for row in own[:4]]
    rows[1]["BilledCost"] = "NaN"
    rows[2]["BillingCurrency"] = "EUR"
    rows[3]["ChargePeriodStart"] = "soon"
    answer = past.run("--json", "reconcile", str(written(tmp_path / "bill.csv", rows)), *MARCH)
    assert answer.code == 1
    fields = [problem["field"] for problem in json.loads(answer.err)["problems"]]
    assert fields == ["line 3, BilledCost", "line 4, BillingCurrency", "line 5, ChargePeriodStart"]


HEADER = (
    "ResourceId,ChargePeriodStart,ChargePeriodEnd,BilledCost,EffectiveCost,BillingCurrency,ChargeCategory,"
    "ChargeClass,Tags"
)
ROW = "i-base,2026-03-01T12:00:00Z,2026-03-01T13:00:00Z,1,1,USD,Usage,,"
FILES = {
    "empty": (b"", "has no rows"),
    "header": (HEADER.encode(), "the bill has no rows"),
    "zip": (b"PK\x03\x04more", "is a ZIP archive"),
    "cut": (gzip.compress(f"{HEADER}\n{ROW}\n".encode())[:-12], "cannot be read"),
    "damaged": (gzip.compress(b"")[:10] + b"\x07" * 20, "cannot be read"),
    "binary": (b"\xff\xfe\x00\x01" * 50, "is neither CSV nor JSON lines"),
    "missing": (b"ResourceId,BilledCost\n1,2\n", "lacks the columns ChargePeriodStart, ChargePeriodEnd"),
    "other": (b"name,colour\na,b\n", "has none of the columns of FOCUS or CUR 2.0"),
    "twice": (f"{HEADER},Tags\n{ROW},\n".encode(), "has the columns Tags more than once"),
    "short": (f"{HEADER}\n{ROW}\ni-base,2026\n".encode(), "has faults, so nothing was compared"),
    "february": (
        f"{HEADER}\n{ROW}\n".replace("2026-03", "2026-02").encode(),
        "its rows are of 2026-02",
    ),
    "nameless": (f"{HEADER}\n{ROW}\n".replace("i-base", "").encode(), "the bill names no resource in any row"),
    "quote": (f'{HEADER}\n"{ROW}\n'.encode(), "is neither CSV nor JSON lines"),
    "array": (b"[1]\n", "has none of the columns"),
    "halfjson": (b'{"ResourceId": \n', "line 1 is not JSON"),
    "nojson": (
        json.dumps(dict(zip(HEADER.split(","), ROW.split(","), strict=True))).encode() + b"\n[]\n",
        "line 2 is not",
    ),
    "long": (b"x" * (5 << 20), "has a line of more than 4,194,304 characters"),
}


@pytest.mark.parametrize("name", list(FILES))
def test_a_file_that_is_not_what_it_seems_is_refused_by_name(world, tmp_path, name):
    data, message = FILES[name]
    path = tmp_path / f"{name}.bill"
    path.write_bytes(data)
    answer = world.run("reconcile", str(path), *MARCH)
    assert answer.code == 1
    assert message in " ".join(answer.err.split())
    assert "Traceback" not in answer.err


def test_what_a_bill_says_cannot_drive_a_terminal(past, own, tmp_path):
    rows = [dict(own[0]), own[0] | {"ChargeCategory": "\x1b[2J\x1b]0;x\x07"}, own[1] | {"SkuMeter": "\x1b[31mBytes"}]
    rows[0]["Tags"] = json.dumps({"Team": "\x1b[5mvision"})
    answer = past.run("reconcile", str(written(tmp_path / "bill.csv", rows)), *MARCH)
    assert answer.code == 1
    assert "vision" in answer.out and "Bytes" in answer.out
    assert "\x1b" not in answer.out and "\x07" not in answer.out


def test_no_file_and_a_tolerance_that_is_none_are_refused(past, tmp_path):
    assert past.run("reconcile", str(tmp_path / "none.csv"), *MARCH).code == 3
    path = written(tmp_path / "bill.csv", [{"a": "b"}])
    assert past.run("reconcile", str(path), "--tolerance", "nan").code == 2
    assert past.run("reconcile", str(path), "--tolerance", "-1").code == 2
