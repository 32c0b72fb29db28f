"""Preflight probes of a cluster on which something is wrong: each ends by itself, with exit code 1 and the cause."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_elastic import ElasticLive, probe

pytestmark = pytest.mark.timeout(1800)
BOOT = Path(__file__).parent / "programs" / "failing_boot.py"
PATIENCE = "2m"
"""How long a probe is waited for, in real time: 24 minutes of the market's."""


class OneType(ElasticLive):
    """A cluster that launches one type in one zone."""

    types = ("c6i.large",)
    zones = ("a",)


class Faulty:
    """A running cluster, and the file that says how its next instances boot."""

    def __init__(self, folder: Path, cluster: ElasticLive) -> None:
        self.mode, self.live = folder / "mode", cluster
        self.mode.write_text("well")


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    folder = tmp_path_factory.mktemp("faulty")
    with OneType(folder, boot=(sys.executable, str(BOOT), str(folder / "mode"))) as cluster:
        yield Faulty(folder, cluster)


def is_over(live: ElasticLive) -> Any:
    """Whether every probe has reached a final state."""
    return all(record.value.state.final for record in live.store.records.scan().values()) or None


@pytest.mark.parametrize("mode", ["no-metadata", "silent"])
def test_an_instance_whose_agent_never_reports_is_named(faulty: Faulty, mode: str) -> None:
    faulty.mode.write_text(mode)
    code, checks = probe("--timeout", PATIENCE)
    assert (code, list(checks)) == (1, [f"{m}: {p}" for m in ("spot", "on-demand") for p in ("launch", "agent")])
    for market in ("spot", "on-demand"):
        assert checks[f"{market}: launch"][0] == "ok"
        verdict, detail, fix = checks[f"{market}: agent"]
        assert (verdict, "no agent has reported" in detail, "metadata service, DNS" in fix) == ("fail", True, True)
    faulty.live.until(lambda: is_over(faulty.live))


def test_without_spot_capacity_the_probe_on_demand_still_proves_its_market(faulty: Faulty) -> None:
    faulty.mode.write_text("well")
    faulty.live.cloud.do("drought", pool="c6i.large", market="spot")
    code, checks = probe("--timeout", PATIENCE)
    assert code == 1
    verdict, detail, fix = checks["spot: launch"]
    assert (verdict, "InsufficientInstanceCapacity" in detail, "add types and zones" in fix) == ("fail", True, True)
    assert {checks[f"on-demand: {part}"][0] for part in ("launch", "agent", "lease", "store")} == {"ok"}
    faulty.live.until(lambda: is_over(faulty.live))
