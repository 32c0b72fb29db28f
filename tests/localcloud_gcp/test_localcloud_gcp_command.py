"""`everspot-local up --cloud gcp`, as users run it."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from everspot_local.address import Address


class GcpCommand:
    """`everspot-local` on a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "everspot_local.main", *arguments, "--state-dir", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcpCommand]:
    command = GcpCommand(Path(tmp_path_factory.mktemp("command")) / "local")
    options = ("--time-scale", "120", "--no-processes", "--quota", "PREEMPTIBLE_CPUS=64", "--delay", "operation=9s")
    command("up", "--cloud", "gcp", *options)
    yield command
    command("down")


def test_env_names_every_product_and_nothing_of_another_cloud(local: GcpCommand) -> None:
    environment = local.json("env")
    url = environment["EVERSPOT_GCP_ENDPOINT"]
    assert environment["GOOGLE_COMPUTE_CUSTOM_ENDPOINT"] == f"{url}/compute/v1/"
    assert environment["GOOGLE_IAM_BETA_CUSTOM_ENDPOINT"] == f"{url}/iam/v1/"
    assert (environment["GOOGLE_PROJECT"], environment["GOOGLE_REGION"]) == ("everspot-local", "europe-west4")
    assert not [name for name in environment if name.startswith("AWS_")]
    assert all(value.endswith("/") for name, value in environment.items() if name.endswith("_CUSTOM_ENDPOINT"))
    request = urllib.request.Request(
        f"{environment['GOOGLE_COMPUTE_CUSTOM_ENDPOINT']}projects/{environment['GOOGLE_PROJECT']}/regions/{environment['GOOGLE_REGION']}",
        headers={"Authorization": f"Bearer {environment['GOOGLE_OAUTH_ACCESS_TOKEN']}"},
    )
    with urllib.request.urlopen(request) as answer:
        region = json.loads(answer.read())
    assert [zone.rpartition("/")[2] for zone in region["zones"]] == [f"europe-west4-{x}" for x in "abc"]


def neighbour(folder: Path, clock: str, cloud: str = "aws") -> str:
    """A folder that says that a local cloud with this clock runs there."""
    scale, _, _ = clock.partition("@")
    folder.mkdir()
    address = Address(os.getpid(), "http://127.0.0.1:9", "eu-west-1", float(scale), clock, cloud)
    address.write(folder)
    return str(folder)


def test_clouds_whose_clocks_differ_are_not_introduced(local: GcpCommand, tmp_path: Path) -> None:
    scale, _, epoch = local.json("env")["EVERSPOT_CLOCK"].partition("@")
    later = neighbour(tmp_path / "later", f"{scale}@{int(epoch) + 90}")
    message = " ".join(local("meet", later, code=1).split())
    assert "the market time here is 2h58m30s ahead of that there" in message and "--clock-of" in message
    slower = neighbour(tmp_path / "slower", f"60@{epoch}")
    assert "120 times as fast as this machine's here, and 60 times there" in " ".join(
        local("meet", slower, code=1).split()
    )
    assert "one runs here already" in local("up", "--clock-of", later, code=1)
    assert "runs already" in local("up", "--clock-of", neighbour(tmp_path / "same", f"{scale}@{int(epoch) + 3}"))
    assert "--time-scale" in local("up", "--clock-of", later, "--time-scale", "12", code=1)


def test_a_cloud_that_keeps_anothers_clock_is_introduced(local: GcpCommand, tmp_path: Path) -> None:
    second = GcpCommand(tmp_path / "aws")
    second("up", "--cloud", "aws", "--no-processes", "--clock-of", str(local.folder))
    try:
        assert second.json("env")["EVERSPOT_CLOCK"] == local.json("env")["EVERSPOT_CLOCK"]
        times = [datetime.fromisoformat(each.json("status")["now"]) for each in (local, second, local)]
        assert times == sorted(times)
        assert "know each other" in second("meet", str(local.folder))
    finally:
        second("down")


def test_a_drought_is_of_spot_of_on_demand_or_of_both(local: GcpCommand) -> None:
    pool = "g2-standard-4/europe-west4-b"
    lasting = ("--for", "30d")  # longer than any machine takes to look
    local("drought", pool, "--market", "on-demand", *lasting)
    (row,) = (row for row in local.json("status")["pools"] if row["pool"] == pool)
    assert (row["dry"], row["on_demand_dry"]) == (False, True)
    assert "spot and on-demand" in local("drought", pool, "--market", "spot", "--market", "on-demand", *lasting)
    (row,) = (row for row in local.json("status")["pools"] if row["pool"] == pool)
    assert (row["dry"], row["on_demand_dry"]) == (True, True)
    assert "'soon' is not one of" in local("drought", pool, "--market", "soon", code=2)


def test_status_and_the_actions_are_the_same(local: GcpCommand) -> None:
    assert local.json("drought", "g2-standard-4/europe-west4-a")["pools"] == ["g2-standard-4/europe-west4-a"]
    assert local.json("status")["time_scale"] == 120
    assert json.loads((local.folder / "state.json").read_text())["cloud"] == "gcp"


def test_a_cloud_or_a_quota_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    command = GcpCommand(tmp_path)
    assert "one of aws, gcp" in command("up", "--cloud", "other", code=1)
    assert "PREEMPTIBLE_CPUS" in command("up", "--cloud", "gcp", "--quota", "L-34B43A08=1", code=1)
    assert list(tmp_path.iterdir()) == []
