"""Preflight probes of misconfigured clusters: each ends by itself, with exit code 1 and the cause."""

import json
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from e2e_elastic import ElasticLive
from e2e_helpers import BUCKETS
from everspot_cli.main import main
from everspot_cli.session import Session
from everspot_core.capacity.launching import LaunchOutcome
from everspot_core.jobs.records import Market
from everspot_store import SystemClock

pytestmark = pytest.mark.timeout(1800)
BOOT = Path(__file__).parent / "programs" / "failing_boot.py"
LIMIT = timedelta(minutes=20)
"""How long a probe is waited for, unless an option says otherwise."""


class OneType(ElasticLive):
    """A cluster that launches one type in one zone."""

    types = ("c6i.large",)
    zones = ("a",)


class Faulty:
    """A running cluster, and the file that says how its next instances boot."""

    def __init__(self, folder: Path, cluster: ElasticLive) -> None:
        self.modes, self.live = folder / "modes.json", cluster
        self.boot(spot="well", on_demand="well")

    def boot(self, spot: str, on_demand: str) -> None:
        """Set how the next instances of each market boot."""
        self.modes.write_text(json.dumps({"spot": spot, "on-demand": on_demand}))

    def outcomes(self, market: Market) -> list[LaunchOutcome]:
        """Return the outcomes of the launches for the probe of a market that has not ended."""
        intents = [document.value for document in self.live.store.launching.scan().values()]
        final = {job for job, record in self.live.store.records.scan().items() if record.value.state.final}
        jobs = {job for intent in intents for job in intent.jobs if f"-{market.value}-" in job} - final
        return [each.outcome for each in intents if each.outcome is not None and jobs.intersection(each.jobs)]

    def launched(self, market: Market) -> bool:
        """Return whether the probe of a market has an instance."""
        return any(outcome.instances for outcome in self.outcomes(market))

    def ended(self, market: Market) -> bool:
        """Return whether the probes of a market have reached a final state."""
        records = [record.value for record in self.live.store.records.scan().values()]
        states = [record.state for record in records if f"-{market.value}-" in record.job_id]
        return bool(states) and all(state.final for state in states)


class HastyClock(SystemClock):
    """A clock on which the limit of a command passes as soon as nothing more is to come."""

    def __init__(self, nothing_to_come: Callable[[], bool]) -> None:
        super().__init__()
        self._nothing_to_come, self._ahead = nothing_to_come, timedelta(0)

    def monotonic(self) -> timedelta:
        if not self._ahead and self._nothing_to_come():
            self._ahead = LIMIT
        return super().monotonic() + self._ahead


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    folder = tmp_path_factory.mktemp("faulty")
    with OneType(folder, boot=(sys.executable, str(BOOT), str(folder / "modes.json"))) as cluster:
        yield Faulty(folder, cluster)


@pytest.fixture
def probe(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Callable[[], bool]], tuple[int, dict[str, tuple[str, str, str]]]]:
    """Probes the cluster in this process until the limit, which passes once nothing more is to come. Returns the exit
    code, and verdict, detail and fix of each check by its name."""

    def run(nothing_to_come: Callable[[], bool]) -> tuple[int, dict[str, tuple[str, str, str]]]:
        monkeypatch.setattr(Session, "clock", HastyClock(nothing_to_come))
        with pytest.raises(SystemExit) as ended:
            main(["--store", f"s3://{BUCKETS[0]}", "--json", "preflight", "--probe"])
        (cluster,) = json.loads(capsys.readouterr().out)["clusters"].values()
        assert cluster["ok"] is (ended.value.code == 0)
        checks = {c["name"]: (c["verdict"], c["detail"], c["fix"]) for c in cluster["checks"]}
        return int(ended.value.code or 0), checks

    return run


def test_without_spot_capacity_the_probe_on_demand_still_proves_its_market(faulty: Faulty, probe: Any) -> None:
    faulty.live.cloud.do("drought", pool="c6i.large", market="spot")
    refused = lambda: any(outcome.errors for outcome in faulty.outcomes(Market.SPOT))  # noqa: E731
    code, checks = probe(lambda: refused() and faulty.ended(Market.ON_DEMAND))
    assert code == 1
    verdict, detail, fix = checks["spot: launch"]
    assert (verdict, "InsufficientInstanceCapacity" in detail, "add types and zones" in fix) == ("fail", True, True)
    assert {checks[f"on-demand: {part}"][0] for part in ("launch", "agent", "lease", "store")} == {"ok"}
    faulty.live.until(lambda: faulty.ended(Market.SPOT) or None)
    faulty.live.cloud.do("recover", pool="c6i.large", market="spot")


def test_an_instance_whose_agent_never_reports_is_named(faulty: Faulty, probe: Any) -> None:
    faulty.live.until(lambda: not faulty.live.agents("pending", "running") or None)
    faulty.boot(spot="silent", on_demand="no-metadata")
    code, checks = probe(lambda: len(faulty.live.agents("running")) == 2 and all(map(faulty.launched, Market)))
    assert (code, list(checks)) == (1, [f"{m}: {p}" for m in ("spot", "on-demand") for p in ("launch", "agent")])
    for market in ("spot", "on-demand"):
        assert checks[f"{market}: launch"][0] == "ok"
        verdict, detail, fix = checks[f"{market}: agent"]
        assert (verdict, "no agent has reported" in detail, "metadata service, DNS" in fix) == ("fail", True, True)
    faulty.live.until(lambda: all(map(faulty.ended, Market)) or None)
