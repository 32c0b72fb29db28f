"""The components as a package for every Pulumi language: tokens, schema, the server, and the frozen interface."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import everspot
import pytest
import yaml
from everspot_core.cluster.manifest import Limits
from everspot_core.documents import parse_duration
from everspot_core.validation.problems import camel
from pulumi.provider.experimental.component import ComponentProvider

Declare = Callable[..., tuple[Any, dict[str, Any]]]
ROOM = Path(__file__).resolve().parents[2] / "components"
COMPONENTS = {
    "AwsAccountSetup", "AwsBootstrap", "AwsElasticCapacity", "AwsIdentity", "AwsInterruptionEvents",
    "AwsKubernetesPool", "AwsMonitoring", "AwsNetwork", "AwsSchedulerService", "AwsStore", "AwsTrainingCluster",
    "AwsTrainingFleet",
    "GcpAccountSetup", "GcpBootstrap", "GcpElasticCapacity", "GcpIdentity", "GcpInterruptionEvents", "GcpMonitoring",
    "GcpNetwork", "GcpSchedulerService", "GcpStore", "GcpTrainingCluster", "GcpTrainingFleet",
}  # fmt: skip
ARGS = {f"{name}Args" for name in COMPONENTS} | {
    "AwsAlarmsArgs", "AwsAnomaliesArgs", "AwsCapacityArgs", "AwsCapacityRebalanceArgs", "AwsElasticArgs",
    "AwsInstanceTypeArgs", "AwsKubernetesCapacityArgs", "AwsKubernetesElasticArgs", "AwsKubernetesNodesArgs",
    "AwsKubernetesPrometheusArgs", "AwsKubernetesTypeArgs", "AwsPodIdentityArgs",
    "AwsMachineArgs", "AwsNotificationsArgs", "AwsOnDemandAllocation", "AwsPrometheusArgs",
    "AwsSpendingArgs", "AwsSpotAllocation", "AwsStandingArgs",
    "AnomalyArgs", "LimitsArgs", "PeerArgs", "RepositoryArgs", "TeamBudgetArgs", "WeightBy",
    "GcpAlarmsArgs", "GcpCapacityArgs", "GcpElasticArgs", "GcpInstanceTypeArgs", "GcpMachineArgs",
    "GcpNotificationsArgs", "GcpPrefer", "GcpPrometheusArgs", "GcpShape", "GcpSpendingArgs", "GcpStandingArgs",
}  # fmt: skip

JOBS = {"CliError", "Client", "JobHandle", "JobStatus", "job"}
"""The Python API of jobs."""

SDKS = {"AwsTrainingCluster": "pulumi_aws", "GcpTrainingCluster": "pulumi_gcp"}


def provider() -> ComponentProvider:
    return ComponentProvider([getattr(everspot, name) for name in sorted(COMPONENTS)], "everspot")


def test_the_surface_is_frozen() -> None:
    assert set(everspot.__all__) == COMPONENTS | ARGS | JOBS
    assert everspot.__all__ == sorted(everspot.__all__)


def test_every_name_is_imported_from_its_home_when_it_is_asked_for() -> None:
    assert {name: getattr(everspot, name).__name__ for name in everspot.__all__} == {n: n for n in everspot.__all__}
    with pytest.raises(AttributeError, match="AzureTrainingCluster"):
        everspot.AzureTrainingCluster  # noqa: B018
    # A cloud's SDK takes seconds to load, so the package and one cloud's components do not load another cloud's SDK.
    loaded = "import sys, everspot; assert not {m for m in sys.modules if m.startswith('pulumi')}; everspot.%s; print("
    loaded += "*sorted({m.partition('.')[0] for m in sys.modules} & {'pulumi_aws', 'pulumi_gcp'}))"
    for name, sdk in SDKS.items():
        done = subprocess.run([sys.executable, "-c", loaded % name], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [sdk]


def test_the_committed_schema_is_what_the_code_says() -> None:
    schema = json.loads(provider().schema)
    committed = json.loads((ROOM / "schema.json").read_text())
    assert schema == committed, (
        "inputs or outputs changed: see docs/guide/components.md on how to write components/schema.json"
    )


def test_every_input_output_and_value_is_described() -> None:
    schema = json.loads(provider().schema)
    missing = [f"{name}.{prop}" for name, kind in {**schema["resources"], **schema["types"]}.items()
               for part in ("inputProperties", "properties") for prop, about in kind.get(part, {}).items() if not about.get("description")]  # fmt: skip # noqa: E501
    assert missing == []
    assert all(value.get("description") for kind in schema["types"].values() for value in kind.get("enum", []))


def test_the_defaults_of_limits_are_those_that_machines_have() -> None:
    described = json.loads(provider().schema)["types"]["everspot:index:LimitsArgs"]["properties"]
    # How long an elastic instance may be idle is said with what is elastic.
    defaults = {camel(name): getattr(Limits(), name) for name in Limits.model_fields if name != "idle_limit"}
    documented = {
        name: about["description"].rpartition(" Default: ")[2].rstrip(".") for name, about in described.items()
    }
    assert {name: parse_duration(text) for name, text in documented.items()} == defaults


def test_a_served_component_takes_another_languages_inputs(declare: Declare) -> None:
    inputs: Any = {
        "tags": {"Project": "p", "Team": "t", "Environment": "e"},
        "zones": ["eu-west-1a"],
        "imageId": "ami-1",
        "retainStore": False,
        "limits": {"leaseTtl": "30s"},
        # Numbers come over the wire as floats.
        "capacity": {"standing": {"target": 4.0, "onDemandBase": 1.0, "spotAllocation": "capacity-optimized",
                                  "weightBy": "vcpu"},
                     "elastic": {"maxInstances": 8.0, "markets": ["spot"]},
                     "instanceTypes": [{"type": "c6i.large"}, {"type": "c6i.xlarge", "maxPrice": 0.1}]},
    }  # fmt: skip
    states: list[dict[str, Any]] = []

    def program() -> dict[str, Any]:
        result = provider().construct("far", "everspot:index:AwsTrainingCluster", inputs)
        states.append(dict(result.state))
        return {"urn": result.urn}

    recorder, outputs = declare(program)
    assert outputs["urn"].endswith("everspot:index:AwsTrainingCluster::far")
    assert {"controlUrl", "queueUrl", "onDemandFleetId", "spotFleetId", "subnetIds"} <= states[0].keys()
    fleet = recorder.inputs("far-fleet-spot")
    assert fleet["targetCapacitySpecification"]["totalTargetCapacity"] == 3
    assert fleet["spotOptions"]["allocationStrategy"] == "capacity-optimized"
    assert [o["weightedCapacity"] for o in fleet["launchTemplateConfigs"][0]["overrides"]] == [1, 2]
    assert recorder.inputs("far-store-data")["forceDestroy"] is True


def test_a_served_component_of_google_cloud_takes_another_languages_inputs(declare: Declare) -> None:
    inputs: Any = {
        "tags": {"Project": "p", "Team": "t", "Environment": "e"},
        "zones": ["europe-west4-a"],
        "imageId": "projects/everspot-local/global/images/everspot-1",
        "retainStore": False,
        "capacity": {"standing": {"target": 4.0, "onDemandBase": 1.0, "prefer": "order", "shape": "BALANCED"},
                     "elastic": {"maxInstances": 8.0, "markets": ["spot"], "maxRun": "2d"},
                     "instanceTypes": [{"type": "g2-standard-8"}, {"type": "g2-standard-4", "throughput": 0.5}]},
    }  # fmt: skip
    states: list[dict[str, Any]] = []

    def program() -> dict[str, Any]:
        result = provider().construct("far", "everspot:index:GcpTrainingCluster", inputs)
        states.append(dict(result.state))
        return {"urn": result.urn}

    recorder, outputs = declare(program)
    assert outputs["urn"].endswith("everspot:index:GcpTrainingCluster::far")
    assert {"controlUrl", "queueUrl", "onDemandGroup", "spotGroup", "subnetwork"} <= states[0].keys()
    group = recorder.inputs("far-fleet-spot")
    assert (group["targetSize"], group["distributionPolicyTargetShape"]) == (3, "BALANCED")
    assert [selection["machineTypes"] for selection in group["instanceFlexibilityPolicy"]["instanceSelections"]] == [
        ["g2-standard-8"], ["g2-standard-4"],
    ]  # fmt: skip
    assert recorder.inputs("far-elastic-template")["scheduling"]["maxRunDuration"] == {"seconds": 172800}


PLUGINS = {
    "": ("components", {"pulumi-aws", "pulumi-gcp"}),
    "aws": ("components-aws", {"pulumi-aws"}),
    "gcp": ("components-gcp", {"pulumi-gcp"}),
}
"""The folders that the engine serves components from: the extra that each installs, and the SDKs in it."""


@pytest.mark.parametrize("name", PLUGINS)
def test_a_folder_is_a_component_plugin_with_the_sdks_of_its_clouds(name: str) -> None:
    folder = ROOM / name
    extra, sdks = PLUGINS[name]
    # A user who adds the package from git installs only this; the base alone would lack Pulumi.
    requirements = [line for line in (folder / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    up = os.path.relpath(ROOM.parent, folder)
    assert requirements == [f"{up}[{extra}]"]
    extras = tomllib.loads((ROOM.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed = {line.partition("==")[0] for line in extras[extra]}
    assert {package for package in installed if package.startswith("pulumi-")} == sdks
    assert "pulumi" in installed and set(extras[extra]) <= set(extras["components"])
    plugin = yaml.safe_load((folder / "PulumiPlugin.yaml").read_text())
    assert (set(plugin), plugin["runtime"]["name"]) == ({"runtime"}, "python")
    environment = os.path.relpath(folder / plugin["runtime"]["options"]["virtualenv"], ROOM.parent)
    assert environment.startswith(".everspot/") and ".everspot/" in (ROOM.parent / ".gitignore").read_text().split()
    assert not (folder / "Pulumi.yaml").exists()


@pytest.mark.engine
def test_the_engine_reads_the_schema_from_the_served_folder(tmp_path: Path) -> None:
    """Uses the executable form, because the language host that is built here cannot run a folder."""
    pulumi_bin = ROOM.parent / ".everspot/toolchain/bin"
    served = tmp_path / "pulumi-resource-everspot"
    served.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOM}/__main__.py "$@"\n')
    served.chmod(0o755)
    env = {**os.environ, "PATH": f"{pulumi_bin}:{os.environ['PATH']}", "PULUMI_HOME": str(tmp_path / "home"),
           "PULUMI_SKIP_UPDATE_CHECK": "1"}  # fmt: skip
    done = subprocess.run(
        ["pulumi", "package", "get-schema", str(served)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["resources"]) == {f"everspot:index:{name}" for name in COMPONENTS}
