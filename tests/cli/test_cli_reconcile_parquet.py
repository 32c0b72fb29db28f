"""`everspot cost reconcile` with Parquet, the default export format, with the column types that clouds use."""

import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from everspot_core import extras
from test_cli_reconcile import MARCH, _moment, as_cur, compared, own, written  # noqa: F401 - fixtures

pa = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed: run make setup")
pq = pytest.importorskip("pyarrow.parquet")

TAGS = pa.map_(pa.string(), pa.string())
AWS = {"BilledCost": pa.float64(), "EffectiveCost": pa.float64(), "Tags": TAGS}
CUR = {"line_item_unblended_cost": pa.float64(), "resource_tags": TAGS}
GOOGLE = {"BilledCost": pa.decimal128(38, 12), "EffectiveCost": pa.decimal128(38, 12),
          "Tags": pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))}  # fmt: skip


def typed(name: str, text: str, kinds):
    """A cell of text as the exporter's own type has it; None where it is empty."""
    kind = kinds.get(name)
    if kind is TAGS:
        return list(json.loads(text).items()) if text else None
    if kind is not None and pa.types.is_list(kind):
        return [{"key": k, "value": v} for k, v in json.loads(text).items()] if text else None
    if not text:
        return None
    if "Period" in name or name.endswith("_date"):
        return datetime.fromisoformat(text)
    return (Decimal(text) if pa.types.is_decimal(kind) else float(text)) if kind is not None else text


def parquet(path: Path, rows: list[dict[str, str]], kinds, unit: str, **how) -> Path:
    columns = {}
    for name in rows[0]:
        cells = [typed(name, row[name], kinds) for row in rows]
        moments = any(isinstance(cell, datetime) for cell in cells)
        kind = kinds.get(name) or (pa.timestamp(unit, tz="UTC") if moments else pa.string())
        columns[name] = pa.array(cells, kind)
    pq.write_table(pa.table(columns), path, **how)
    return path


def without(document):
    return {key: value for key, value in document.items() if key not in ("tables", "as_of")}


@pytest.mark.parametrize(
    ("kinds", "unit", "how"),
    [(AWS, "ms", {"compression": "snappy"}), (GOOGLE, "us", {"compression": "zstd", "row_group_size": 3})],
    ids=["aws", "google"],
)
def test_the_same_bill_is_the_same_as_parquet_and_as_csv(past, own, tmp_path, kinds, unit, how):  # noqa: F811
    rows = [row for row in own if row["ResourceId"] != "i-spot3"]  # something to tell by
    text = compared(past, written(tmp_path / "bill.csv", rows), code=1)
    assert text["only_here"]["count"] > 0 and text["by_tag"]["Team"]
    assert without(compared(past, parquet(tmp_path / "bill.parquet", rows, kinds, unit, **how), code=1)) == without(
        text
    )


def test_cur_2_in_parts_of_both_kinds_counts_each_row_once(past, own, tmp_path):  # noqa: F811
    rows = as_cur(own)
    tax = rows[0] | {"line_item_resource_id": "", "line_item_line_item_type": "Tax", "line_item_unblended_cost": "0.5"}
    files = [
        parquet(tmp_path / "1.snappy.parquet", [*rows[:5], tax], CUR, "ns"),
        written(tmp_path / "2.csv.gz", rows[5:]),
    ]
    document = compared(past, *files)
    assert (document["gap_usd"], document["tables"]) == (pytest.approx(0, abs=1e-6), ["CUR 2.0"])
    assert document["other_charges"]["Tax"]["usd"] == 0.5
    assert compared(past, *files, files[0])["repeated_rows"] == 5


def test_what_is_wrong_is_told_by_row(past, own, tmp_path):  # noqa: F811
    rows = [dict(row) for row in own[:3]]
    rows[1]["BilledCost"] = "nan"
    rows[2]["BillingCurrency"] = "EUR"
    answer = past.run("--json", "reconcile", str(parquet(tmp_path / "a.parquet", rows, AWS, "ms")), *MARCH)
    assert answer.code == 1
    assert [problem["field"] for problem in json.loads(answer.err)["problems"]] == [
        "row 2, BilledCost",
        "row 3, BillingCurrency",
    ]


@pytest.mark.parametrize("broken", ["start", "cut", "middle"])
def test_a_broken_file_is_refused_in_one_sentence(past, own, tmp_path, broken):  # noqa: F811
    path = parquet(tmp_path / "bill.parquet", own, AWS, "ms")
    data = path.read_bytes()
    path.write_bytes(
        {"start": b"PAR1\x15\x04", "cut": data[:-40], "middle": data[:4] + b"\xff" * 400 + data[404:]}[broken]
    )
    answer = past.run("reconcile", str(path), *MARCH)
    assert answer.code == 1
    assert "cannot be read" in " ".join(answer.err.split()) and "Traceback" not in answer.err


def test_without_the_extra_it_is_named(past, own, tmp_path, monkeypatch):  # noqa: F811
    path = parquet(tmp_path / "bill.parquet", own, AWS, "ms")
    monkeypatch.setattr(extras, "requires", lambda name: ['pyarrow>=20; extra == "parquet"'])
    monkeypatch.setattr(extras, "_installed", lambda name: name != "pyarrow")
    answer = past.run("--json", "reconcile", str(path), *MARCH)
    needs = "everspot cost reconcile of Parquet needs pyarrow, which is not installed: pip install 'everspot[parquet]'"
    assert (answer.code, json.loads(answer.err)["error"]) == (1, needs)
