"""The tables of localcloud/refusals-google-cloud.md name tests that exist."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = (*HERE.glob("test_*.py"), HERE.parent / "clouds/test_clouds_gcp_launches.py")
SOURCES = "".join(file.read_text(encoding="utf-8") for file in FILES)
TESTS = set(re.findall(r"^def test_(\w+)", SOURCES, re.MULTILINE))


def rows() -> list[str]:
    """Every row of every table of refusals."""
    text = (HERE.parents[1] / "localcloud/refusals-google-cloud.md").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| rule"))]


def test_the_tables_hold_every_rule() -> None:
    assert len(rows()) > 30


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.split("|")[1].strip()[:40])
def test_every_rule_names_a_test_that_exists(row: str) -> None:
    references = re.findall(r"`(\w+)(…?)`", row.split("|")[-2])
    assert references
    for name, cut in references:
        assert any(test.startswith(name) if cut else test == name for test in TESTS)
