"""`everspot gpus`: offers in all regions of both clouds; and the prices that `submit` prints."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from everspot_clouds.price_files import write_table
from everspot_core.capacity.price_table import PriceTable, TypePrice

from tests.cli.conftest import everspot


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "Pulumi.yaml").write_text("name: p\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_offers_of_both_clouds_come_with_the_cheapest_whole_gpu_first(project: Path):
    offers = json.loads(everspot("gpus", "--model", "l4", "--json").out)["offers"]
    assert {offer["gpu"] for offer in offers} == {"L4"}
    assert {"us-east-1", "us-central1"} <= {offer["region"] for offer in offers}
    usd = [offer["usd_per_gpu_hour"] for offer in offers]
    assert usd == sorted(usd)
    by_type = {offer["instance_type"]: offer for offer in offers if offer["region"] == "us-east-1"}
    # An eighth of a GPU is no cheap GPU.
    assert by_type["g6f.large"]["usd_per_gpu_hour"] > by_type["g6.xlarge"]["on_demand_usd_per_hour"]
    assert all(offer["cluster_instances"] is None and offer["price_as_of"] for offer in offers)
    assert {o["gpu"] for o in json.loads(everspot("gpus", "--model", "A100", "--json").out)["offers"]} == {
        "A100", "A100-80GB",
    }  # fmt: skip


def test_a_projects_file_adds_its_region_and_a_region_without_prices_names_the_command(project: Path):
    rows = [TypePrice(instance_type="g6.xlarge", on_demand_usd_per_hour=1.0062)]
    table = PriceTable(
        cloud="aws", region="eu-central-1", as_of=datetime(2026, 11, 1, tzinfo=UTC), on_demand_source="a",
        spot_source="b", prices=rows,
    )  # fmt: skip
    write_table(project / "prices", table)
    out = everspot("gpus", "--region", "eu-central-1", "--region", "ap-south-1").out
    assert "1xL4 22G g6.xlarge eu-central-1 1.006" in " ".join(out.split())
    assert "2026-11-01" in out
    assert "`everspot cost prices refresh --region ap-south-1` reads the price lists" in out


def test_an_unknown_gpu_is_refused_with_the_known_ones(project: Path):
    refused = everspot("gpus", "--model", "H10O")
    assert refused.code == 3 and "did you mean H100" in refused.err and "B200" in refused.err


def test_with_a_cluster_it_says_how_many_instances_it_may_have(world):
    offers = world.run("--json", "gpus", "--model", "A10G", "--region", "us-east-1").json["offers"]
    assert offers and all(isinstance(offer["cluster_instances"], int) for offer in offers)


JOB = """
name: cheap
code: {code}
entrypoint: [train.py]
resources: {{vcpus: 2, memory_gib: 4}}
"""


def test_submit_prints_the_three_cheapest_types_before_it_sends(world, spec_file, tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("print(1)")
    path = str(spec_file(JOB.format(code=code)))
    printed = world.run("submit", path)
    assert printed.code == 0, printed.err
    lines = printed.out.splitlines()
    assert lines[0].startswith("Cheapest for it, an hour: ") and lines[0].count("$") == 3
    assert lines[1].startswith("Submitted ")
    assert "Cheapest" not in world.run("submit", path, "--quiet").out
