"""`everspot init` in regions that the catalogue knows nothing of, against recorded price lists: the month that it
states is the sum that a person gets with the same list."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from everspot_clouds import price_lookup
from everspot_clouds.price_lookup import look_up

from tests.cli.conftest import World, everspot
from tests.price_lists import GOOGLE_REGIONS, MONTHS, ON_DEMAND, Recorded, google_price_lists

AWS_DEV = str(Path(__file__).parents[2] / "stacks/Pulumi.aws-dev.yaml")


def begin(folder: Path, cloud: str, region: str) -> dict[str, Any]:
    account = "123456789012" if cloud == "aws" else "my-project"
    words = ["--cloud", cloud, "--account", account, "--region", region, "--team", "vision"]
    done = everspot("init", str(folder), *words, "--repository", "Org/fleets", "--yes", "--json")
    assert done.code == 0, done.err
    assert (folder / f"prices/{cloud}-{region}.json").is_file()
    return {step["stack"]: step for step in json.loads(done.out)["steps"] if step["stack"]}


def month(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The estimate of the settings of `prod` alone: a preview gives the same (tests/engine/test_engine_regions.py)."""
    monkeypatch.chdir(folder)
    answer = everspot("estimate", "--settings", "stacks/Pulumi.prod.yaml", "--json")
    estimate = json.loads(answer.out)["environments"]["prod"]
    assert estimate["after"]["unpriced"] == [] and estimate["unknown"] == []
    return dict(estimate)


def by_kind(estimate: dict[str, Any]) -> Counter[str]:
    """Dollars by kind of cost."""
    costs: Counter[str] = Counter()
    for part in estimate["after"]["parts"]:
        costs[part["kind"]] += part["range"]["expected"]
    return costs


@pytest.mark.parametrize("region", sorted(ON_DEMAND))
def test_a_month_on_aws_is_what_the_list_adds_up_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, region: str):
    monkeypatch.setattr(boto3, "client", lambda service, region_name, config: Recorded(region))
    prod = begin(tmp_path, "aws", region)["prod"]
    assert prod["costs"].startswith("Costs $")
    assert prod["usd_per_month"]["expected"] == pytest.approx(MONTHS[region], rel=0.1)
    estimate = month(tmp_path, monkeypatch)
    assert estimate["after"]["total"]["expected"] == pytest.approx(MONTHS[region], rel=0.1)
    costs, frankfurt = by_kind(estimate), region == "eu-central-1"
    # 375 GiB; 6,570 hours of endpoints: us-east-1's $30.00 and $65.70 would be up to 29 % less.
    assert costs["volumes"] == pytest.approx(35.70 if frankfurt else 36.00, abs=0.02)
    assert costs["interface endpoints"] == pytest.approx(78.84 if frankfurt else 91.98, abs=0.02)
    assert costs["store requests"] == pytest.approx(1.21 if frankfurt else 1.05, abs=0.01)
    assert estimate["prices_as_of"] == json.loads((tmp_path / f"prices/aws-{region}.json").read_text())["as_of"][:10]


def test_settings_name_zones_that_the_region_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(boto3, "client", lambda service, region_name, config: Recorded("ap-northeast-1"))
    begin(tmp_path, "aws", "ap-northeast-1")
    zones = "zones: [ap-northeast-1a, ap-northeast-1c, ap-northeast-1d]"
    assert zones in (tmp_path / "stacks/Pulumi.prod.yaml").read_text()
    assert "zones: [ap-northeast-1a]" in (tmp_path / "stacks/Pulumi.dev.yaml").read_text()


def test_nat_and_addresses_have_the_regions_prices_and_what_has_not_is_named(tmp_path: Path, monkeypatch):
    region = "ap-northeast-1"
    monkeypatch.setattr(boto3, "client", lambda service, region_name, config: Recorded(region))
    begin(tmp_path, "aws", region)
    path = tmp_path / "stacks/Pulumi.prod.yaml"
    path.write_text(
        path.read_text() + "    nat: true\n    monitoring: {}\n    volumeGib: 100\n    volumeThroughput: 250\n"
    )
    monkeypatch.chdir(tmp_path)
    answer = everspot("estimate", "--settings", str(path), "--json")
    estimate = json.loads(answer.out)["environments"]["prod"]
    costs = by_kind(estimate)
    assert costs["NAT gateway"] == pytest.approx(730 * 0.062, abs=0.01)
    assert costs["public addresses"] == pytest.approx(730 * 0.005, abs=0.01)
    # Four agents with 100 GiB and 125 MiB/s beyond the free ones, and the scheduler's 75 GiB.
    assert costs["volumes"] == pytest.approx(4 * (100 * 0.096 + 125 * 0.048) + 75 * 0.096, abs=0.05)
    (sentence,) = estimate["unknown"]
    assert sentence.startswith(f"{region}: its list prices of monitoring are not known here; us-east-1's stand in")


@pytest.mark.parametrize("region", GOOGLE_REGIONS)
def test_a_month_on_google_cloud_is_what_the_skus_add_up_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, region: str
):
    with google_price_lists() as env:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        prod = begin(tmp_path, "gcp", region)["prod"]
    assert prod["costs"].startswith("Costs $")
    assert prod["usd_per_month"]["expected"] == pytest.approx(MONTHS[region], rel=0.1)
    estimate = month(tmp_path, monkeypatch)
    assert estimate["after"]["total"]["expected"] == pytest.approx(MONTHS[region], rel=0.1)
    assert by_kind(estimate)["volumes"] == pytest.approx(30.0 if region == "europe-west1" else 33.0, abs=0.02)
    table = json.loads((tmp_path / f"prices/gcp-{region}.json").read_text())
    assert table["unpriced"]["a4x-highgpu-4g"] == "the SKUs of A4X are not known"
    assert table["other_usd"]["external_address_hour"] == 0.005
    shown = everspot("prices", "--region", region).out
    assert "g2-standard-4" in shown and "cloudbilling:services.skus" in shown


def test_without_prices_nothing_is_called_a_cost_and_the_command_is_named(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(boto3, "client", lambda *_, **__: (_ for _ in ()).throw(ValueError("no list")))
    words = ["--cloud", "aws", "--account", "123456789012", "--region", "eu-central-1", "--team", "vision"]
    done = everspot("init", str(tmp_path), *words, "--repository", "Org/fleets", "--yes", "--json")
    assert done.code == 0 and not (tmp_path / "prices").exists()
    costs = {step["stack"]: step["costs"] for step in json.loads(done.out)["steps"] if step["stack"]}
    for stack in ("dev", "prod"):
        assert not costs[stack].startswith("Costs")
        assert "`everspot cost prices refresh --region eu-central-1`" in costs[stack]


def refresh(folder: Path, region: str, monkeypatch: pytest.MonkeyPatch) -> str:
    (folder / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    monkeypatch.chdir(folder)
    assert everspot("cost", "prices", "refresh", "--region", region).code == 0
    return str(json.loads((folder / f"prices/aws-{region}.json").read_text())["as_of"])


def start_project(folder: Path, region: str, monkeypatch: pytest.MonkeyPatch) -> str:
    begin(folder, "aws", region)
    return str(json.loads((folder / f"prices/aws-{region}.json").read_text())["as_of"])


def preview(folder: Path, region: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    assert look_up(region, ["g5.xlarge"]).table is not None
    return str(json.loads((folder / f"everspot/prices/aws-{region}.json").read_text())["as_of"])


@pytest.mark.parametrize("write", [refresh, start_project, preview])
def test_a_leftover_clock_of_a_local_cloud_does_not_date_the_prices_of_a_cloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, str, pytest.MonkeyPatch], str]
):
    region = "eu-central-1"
    monkeypatch.setattr(price_lookup, "_answers", {})
    monkeypatch.setattr(boto3, "client", lambda service, region_name, config: Recorded(region))
    monkeypatch.setenv("EVERSPOT_CLOCK", "2@0")  # twice the years since 1970
    assert datetime.fromisoformat(write(tmp_path, region, monkeypatch)) <= datetime.now(UTC)


@pytest.mark.parametrize(
    "command",
    [["gpus"], ["cost", "prices", "--region", "us-east-1"], ["cost", "estimate", "--settings", AWS_DEV]],
    ids=["gpus", "prices", "estimate"],
)
def test_prices_are_known_to_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, command: list[str]):
    """As in a container that runs with a user id of its own."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 54321)
    done = everspot(*command)
    assert done.code == 0 and done.out, done.err


@pytest.mark.parametrize("clock", ["fast", "12@yesterday", "0@1772539200"])
def test_a_clock_that_cannot_be_read_is_named(world: World, monkeypatch: pytest.MonkeyPatch, clock: str):
    monkeypatch.setenv("EVERSPOT_CLOCK", clock)
    done = everspot("--store", world.url, "jobs")
    assert done.code == 2 and f"EVERSPOT_CLOCK='{clock}'" in done.err and "unset EVERSPOT_CLOCK" in done.err


def test_a_region_of_no_cloud_and_a_folder_of_no_project_are_refused(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "is no region of a cloud" in everspot("cost", "prices", "--region", "Ohio").err
    refused = everspot("cost", "prices", "refresh", "--region", "eu-central-1")
    assert refused.code == 1 and "there is no project here" in refused.err
    shown = everspot("cost", "prices", "--region", "eu-central-1")
    assert "No price of eu-central-1 is known" in shown.out
