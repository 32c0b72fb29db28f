"""What environments cost a month, from their settings alone."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from everspot_cli.main import main

SETTINGS = """
config:
  aws:region: us-east-1
  everspot:cluster:
    cloud: aws
    tags: {Project: vision, Team: ml}
    imageParameter: /everspot/image/prod
    volumeGib: 100
    zones: [us-east-1a, us-east-1b]
    capacity:
      standing: {target: TARGET, onDemandBase: 1}
      elastic: {maxInstances: 4, maxUsdPerHour: 0.2}
      instanceTypes: [m6i.large, c6i.large]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "Pulumi.prod.yaml"
    written.write_text(SETTINGS.replace("TARGET", "5"))
    return written


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["estimate", *arguments])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def rows(out: str) -> dict[str, list[str]]:
    """The figures of a table's rows, by what begins them."""
    lines = [line.split() for line in out.splitlines() if "$" in line and not line.startswith(("USD", "Not", "Before"))]
    return {" ".join(part for part in line if "$" not in part): [w for w in line if "$" in w] for line in lines}


def test_a_table_has_every_kind_of_cost_and_the_total_and_says_what_is_not_counted(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = run(capsys, "--settings", str(file))
    assert code == 0
    assert rows(out) == {
        "elastic instances ml": ["$0.00", "$0.00", "$146", "$0.00"],
        "interface endpoints ml": ["$43.80", "$43.80", "$43.80", "$43.80"],
        "on-demand instances ml": ["$77.23", "$77.23", "$85.26", "$77.23"],
        # 4 of m6i.large at $0.0352, at $0.03745 and of c6i.large at $0.0469; on-demand c6i.large at $0.085
        "spot instances ml": ["$103", "$109", "$137", "$248"],
        "store requests ml": ["$1.12", "$1.12", "$1.12", "$1.12"],
        "volumes ml": ["$46.00", "$46.00", "$78.00", "$46.00"],
        "total": ["$271", "$278", "$491", "$416"],
    }
    assert "Not counted, since it costs by use: S3 by storage, and by the requests of jobs" in out
    assert "at prices of 2025-10-01 and later" in out and "Not known" not in out


def test_a_change_is_told_by_each_figure_and_a_change_of_nothing_as_such(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    was = tmp_path / "before.yaml"
    was.write_text(SETTINGS.replace("TARGET", "3"))
    _, out, _ = run(capsys, "--settings", str(file), "--before", str(was))
    assert "Before → after: low $204 → $271, expected $207 → $278" in out
    _, out, _ = run(capsys, "--settings", str(file), "--before", str(file))
    assert "No figure changes." in out


def test_everything_that_is_wrong_is_named_at_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(SETTINGS.replace("TARGET", "lots").replace("maxInstances", "maxInstance").replace("2]", "2"))
    code, _, err = run(capsys, "--settings", str(file))
    assert code == 1
    assert "everspot:cluster.capacity.standing.target: has to be a number, 0 or more" in err
    assert "everspot:cluster.capacity.elastic.maxInstances: is missing" in err
    file.write_text(SETTINGS.replace("TARGET", ".inf"))
    assert "standing.target: has to be a number, 0 or more" in run(capsys, "--settings", str(file))[2]
    file.write_text(
        SETTINGS.replace("TARGET", "2").replace("m6i.large", "m6i.lager").replace("onDemandBase: 1", "onDemandBase: 3")
    )
    code, _, err = run(capsys, "--settings", str(file))
    assert "instanceTypes[0].type: m6i.lager is not in the catalogue" in err
    assert "standing.onDemandBase: 3 is above the target of 2" in err


def test_json_has_every_part(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--settings", str(file), "--json")
    estimate: Any = json.loads(out)["environments"]["prod"]
    assert estimate["before"] is None and estimate["prices_as_of"] == "2025-10-01"
    assert {part["name"] for part in estimate["after"]["parts"]} >= {
        "everspot-prod-fleet-spot",
        "everspot-prod-elastic",
    }


def test_a_ledger_tells_what_elastic_capacity_is_used_for(file: Path, past: Any) -> None:
    file.write_text(SETTINGS.replace("TARGET", "0").replace("onDemandBase: 1", "onDemandBase: 0"))
    parts = past.run("estimate", "--settings", str(file), "--ledger", "--json").json["environments"]["prod"]["after"]
    (elastic,) = [part["range"] for part in parts["parts"] if part["kind"] == "elastic instances"]
    assert 0 < elastic["expected"] <= elastic["high"] == 146


@pytest.mark.parametrize("width", ["80", "60", "40", "20"])
@pytest.mark.parametrize("command", ["estimate", "gpus"])
def test_a_narrow_terminal_cuts_no_figure_and_no_name(
    command: str, width: str, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["cost", "estimate", "--settings", str(file)] if command == "estimate" else ["gpus"]
    figures = []
    for columns in ("200", width):
        monkeypatch.setenv("COLUMNS", columns)
        with pytest.raises(SystemExit):
            main(arguments)
        out = capsys.readouterr().out
        figures.append(re.findall(r"\$[\d.,]+|\d+\.\d+|\b[a-z]\w+\.\w*large\b", out))
    assert figures[0]
    assert figures[1] == figures[0]
