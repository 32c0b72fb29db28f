"""Mistyped settings are found from the file alone, by the components' input names."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from everspot_clouds.estimating import environment
from everspot_core.validation.problems import BadInputs

ROOT = Path(__file__).resolve().parents[2]
STACKS = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))


def config(stack: str) -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load((ROOT / f"stacks/Pulumi.{stack}.yaml").read_text())["config"]
    return settings


def refused(settings: dict[str, Any]) -> list[str]:
    with pytest.raises(BadInputs) as bad:
        environment("x", settings, "everspot")
    return [str(problem) for problem in bad.value.problems]


def test_the_names_are_those_of_the_components_schema() -> None:
    tool = runpy.run_path(str(ROOT / "tools/setting_names.py"))
    written = (ROOT / "clouds/everspot_clouds/setting_names.json").read_text()
    assert written == tool["names"](json.loads((ROOT / "components/schema.json").read_text())), (
        "run tools/setting_names.py"
    )


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.name.split(".")[1])
def test_our_own_files_have_only_settings_that_there_are(path: Path) -> None:
    environment("x", yaml.safe_load(path.read_text())["config"], "everspot")


@pytest.mark.parametrize("stack", ["local", "local-gcp"])
def test_every_mistyped_setting_is_named_with_what_was_meant(stack: str) -> None:
    settings = config(stack)
    cluster = settings["everspot:cluster"]
    cluster["retainStore_"] = 1
    cluster["capacity"]["elastik"] = {}
    cluster["capacity"]["elastic"] = {"maxInstances": 1, "maxUsdPerHor": 1}
    cluster["capacity"]["instanceTypes"] = ["a", {"type": "b", "priorty": 2}]
    assert refused(settings)[:4] == [
        "everspot:cluster.retainStore_: is not a setting (did you mean retainStore?)",
        "everspot:cluster.capacity.elastik: is not a setting (did you mean elastic?)",
        "everspot:cluster.capacity.elastic.maxUsdPerHor: is not a setting (did you mean maxUsdPerHour?)",
        "everspot:cluster.capacity.instanceTypes[1].priorty: is not a setting (did you mean priority?)",
    ]


@pytest.mark.parametrize("stack", ["account", "bootstrap", "gcp-account", "gcp-bootstrap"])
def test_what_an_account_has_once_is_checked_too(stack: str) -> None:
    settings = config(stack)
    (section,) = (key for key in settings if key.startswith("everspot:"))
    settings[section]["tagz"] = {}
    (problem,) = refused(settings)
    assert problem == f"{section}.tagz: is not a setting (did you mean tags?)"


def test_a_mistyped_section_is_named_and_a_projects_own_setting_is_not() -> None:
    assert refused({"everspot:clustr": {}}) == ["everspot:clustr: is not a setting (did you mean cluster?)"]
    environment("x", {"everspot:wiki": 1, "mine:clustr": 1}, "everspot")


def test_a_users_own_keys_are_nobodys_settings() -> None:
    settings = config("local")
    settings["everspot:cluster"]["tags"]["Retain_"] = "x"
    settings["everspot:cluster"]["shares"] = {"anybody": 1}
    environment("x", settings, "everspot")
