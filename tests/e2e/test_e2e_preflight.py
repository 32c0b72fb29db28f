"""A preflight probe on Google Cloud: one small job in each market, each on a launched instance."""

import json
from pathlib import Path

import pytest
from e2e_google import GoogleLive, everspot

pytestmark = pytest.mark.timeout(1200)


def test_a_probe_proves_each_market_of_a_cluster_on_google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with GoogleLive(tmp_path) as live:
        monkeypatch.setenv("EVERSPOT_CLOCK", live.cloud.market.clock.variable)
        (cluster,) = json.loads(everspot("--json", "preflight", "--probe"))["clusters"].values()
        parts = ("launch", "agent", "lease", "store")
        assert [(check["name"], check["verdict"]) for check in cluster["checks"]] == [
            (f"{market}: {part}", "ok") for market in ("spot", "on-demand") for part in parts
        ]
        models = [instance["scheduling"]["provisioningModel"] for instance in live.agents().values()]
        assert sorted(models) == ["SPOT", "STANDARD"]
        live.until(lambda: not live.agents() or None)
