"""Elastic capacity under mocks: its own launch template, its part of cluster.json, and the permissions to launch."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from everspot import AwsTrainingCluster
from everspot.manifest import generation
from everspot_core.cluster.manifest import Manifest
from everspot_core.documents import parse_duration

Declare = Callable[..., tuple[Any, dict[str, Any]]]

ELASTIC = {"max_instances": 8}


@pytest.fixture
def cluster(declare: Declare, spec: Any) -> Callable[..., Any]:
    """Return the resources that a cluster with elastic capacity registers. Keywords change its settings."""

    def build(elastic: Any = ELASTIC, capacity: Any = None, **changes: Any) -> Any:
        own = {**spec["capacity"], **(capacity or {})}
        if elastic is not None:
            own["elastic"] = elastic
        args = {key: value for key, value in {**spec, **changes, "capacity": own}.items() if value is not None}
        return declare(lambda: {"urn": AwsTrainingCluster("train", args).control_url})[0]

    return build


def published(recorder: Any) -> Any:
    return Manifest.read(recorder.inputs("train-manifest")["content"])


def user_data(template: dict[str, Any]) -> Any:
    return Manifest.read(base64.b64decode(template["userData"]))


def test_it_adds_a_launch_template_and_a_permission_and_nothing_else(cluster: Callable[..., Any]) -> None:
    before, after = cluster(elastic=None).types_by_name(), cluster().types_by_name()
    assert {name: after[name] for name in after.keys() - before.keys()} == {
        "train-elastic": "everspot:index:AwsElasticCapacity",
        "train-elastic-template": "aws:ec2/launchTemplate:LaunchTemplate",
        "train-elastic-permissions": "aws:iam/rolePolicy:RolePolicy",
    }
    assert before.keys() <= after.keys()


def test_the_template_is_that_of_the_standing_fleets_but_for_the_idle_limit(cluster: Callable[..., Any]) -> None:
    recorder = cluster(elastic={"max_instances": 8, "idle_limit": "7m"}, limits={"orphan_limit": "20m"})
    standing, elastic = (recorder.inputs(f"train-{part}-template") for part in ("fleet", "elastic"))
    assert {**standing, "userData": ""} == {**elastic, "userData": ""}
    fleet, own = user_data(standing), user_data(elastic)
    assert fleet.limits.idle_limit is None
    assert own.limits.idle_limit == parse_duration("27m")
    assert own.model_copy(update={"limits": fleet.limits}) == fleet
    assert own.generation == published(recorder).generation


def test_cluster_json_alone_says_what_may_be_launched(cluster: Callable[..., Any]) -> None:
    recorder = cluster(
        elastic={"max_instances": 8, "max_usd_per_hour": 6.5, "markets": ["spot"], "zones": ["eu-west-1b"]},
        capacity={
            "max_price": 0.2,
            "instance_types": [
                {"type": "m6i.large", "priority": 2},
                {"type": "c6i.large", "priority": 1, "max_price": 0.1, "zones": ["eu-west-1b"]},
            ],
        },
    )
    launchable = published(recorder).elastic
    assert launchable.types == ["c6i.large", "m6i.large"]
    template = recorder.inputs("train-elastic-template")
    (tags,) = (s["tags"] for s in template["tagSpecifications"] if s["resourceType"] == "instance")
    assert launchable.tags == tags  # a launch repeats what the template says
    assert launchable.max_prices == {"c6i.large": 0.1, "m6i.large": 0.2}
    assert launchable.zones == {"c6i.large": ["eu-west-1b"]}
    assert (launchable.max_instances, launchable.max_usd_per_hour, launchable.markets) == (8, 6.5, ["spot"])
    assert launchable.places == {"eu-west-1b": "train-network-subnet-eu-west-1b-id"}
    assert (launchable.template, launchable.template_version) == ("train-elastic-template-id", "3")
    assert launchable.idle_limit == parse_duration("5m")
    for template in ("fleet", "elastic", "scheduler"):
        assert "elastic" not in json.loads(base64.b64decode(recorder.inputs(f"train-{template}-template")["userData"]))
    everywhere = published(cluster()).elastic
    assert (list(everywhere.places), everywhere.markets) == (["eu-west-1a", "eu-west-1b"], ["spot", "on-demand"])
    assert (everywhere.max_prices, everywhere.zones) == ({}, {})
    assert published(cluster(elastic=None)).elastic is None


@pytest.mark.parametrize(
    "changed",
    [
        {"max_instances": 9},
        {"max_instances": 8, "max_usd_per_hour": 1},
        {"max_instances": 8, "markets": ["on-demand"]},
        {"max_instances": 8, "zones": ["eu-west-1a"]},
    ],
)
def test_what_may_be_launched_changes_nothing_that_an_instance_is_launched_with(
    cluster: Callable[..., Any], changed: Any
) -> None:
    before, after = cluster(), cluster(elastic=changed)
    for template in ("fleet", "elastic", "scheduler"):
        assert before.inputs(f"train-{template}-template") == after.inputs(f"train-{template}-template")
    assert published(before).elastic != published(after).elastic


def test_a_release_that_adds_a_field_to_the_published_manifest_makes_no_generation() -> None:
    """The digest was made by an earlier release. It may change only with what instances are launched with: each
    cluster's idle instances are replaced for it at the next upgrade."""
    manifest = Manifest(cluster="c", cloud="aws", region="eu-west-1", control_url="s3://c", data_url="s3://d")
    assert generation(manifest, {"image": "ami-1"}) == "1a44e62c1c28"


def test_another_idle_limit_makes_no_generation(cluster: Callable[..., Any]) -> None:
    before, after = cluster(), cluster(elastic={"max_instances": 8, "idle_limit": "1h"})
    assert before.inputs("train-fleet-template") == after.inputs("train-fleet-template")
    assert published(before).generation == published(after).generation


def test_what_markets_instances_have_is_what_stands_and_what_comes(cluster: Callable[..., Any]) -> None:
    def markets(standing: Any, elastic: Any) -> list[str]:
        return [*map(str, published(cluster(elastic=elastic, capacity={"standing": standing})).fleet.markets)]

    assert markets({"target": 2, "on_demand_base": 2}, {"max_instances": 3, "markets": ["spot"]}) == [
        "on-demand", "spot",
    ]  # fmt: skip
    assert markets({"target": 0}, {"max_instances": 3, "markets": ["spot"]}) == ["spot"]
    assert markets({"target": 2}, {"max_instances": 0}) == ["spot"]


def test_the_permission_names_what_the_template_names(cluster: Callable[..., Any]) -> None:
    key = "arn:aws:kms:eu-west-1:111122223333:key/k"
    recorder = cluster(volume_key_arns=[key])
    permission = recorder.inputs("train-elastic-permissions")
    policy = {s["Sid"]: s for s in json.loads(permission["policy"])["Statement"]}
    assert permission["role"] == "arn:train-identity-scheduler"
    assert policy["LaunchFromTheTemplate"]["Resource"] == ["arn:train-elastic-template"]
    assert policy["PassTheAgentsRole"]["Resource"] == ["arn:train-identity-agent"]
    assert {r.rpartition(":")[2] for r in policy["LaunchWithWhatItNames"]["Resource"]} == {
        "image/ami-1",
        "security-group/train-network-instances-id",
        *(f"subnet/train-network-subnet-eu-west-1{zone}-id" for zone in "ab"),
    }
    assert policy["EncryptVolumes"]["Resource"] == [key]
    assert "EncryptVolumes" not in cluster().inputs("train-elastic-permissions")["policy"]


def test_the_scheduler_and_cluster_json_come_after_what_they_need(
    cluster: Callable[..., Any], waits: dict[str, set[str]]
) -> None:
    cluster()
    assert "train-elastic-permissions" in waits["train-scheduler-template"] & waits["train-manifest"]


def test_subnets_of_an_existing_network_are_places_by_the_zones_that_they_lie_in(cluster: Callable[..., Any]) -> None:
    existing = {"zones": None, "vpc_id": "vpc-mine", "subnet_ids": ["eu-west-1c", "eu-west-1a"]}
    assert published(cluster(**existing)).elastic.places == {"eu-west-1c": "eu-west-1c", "eu-west-1a": "eu-west-1a"}


def test_a_preview_says_what_an_hour_costs(declare: Declare, spec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    monkeypatch.setattr(pulumi.log, "info", lambda sentence, resource=None: messages.append(sentence))
    spec["capacity"]["elastic"] = {"max_instances": 8, "max_usd_per_hour": 0.5}
    declare(lambda: {"urn": AwsTrainingCluster("train", spec).control_url}, preview=True)
    (hour,) = [
        sentence for sentence in messages if sentence.startswith("An hour of the cluster, at list prices of eu-west")
    ]
    for line in (
        "nothing running: ",
        "standing: ",
        "elastic: up to $0.50 more (maxUsdPerHour; 8 instances of m7i.large",
    ):
        assert f"\n  {line}" in hour
    messages.clear()
    declare(lambda: {"urn": AwsTrainingCluster("train", spec).control_url})
    assert messages == []


def test_a_cap_under_which_nothing_could_be_launched_is_refused(cluster: Callable[..., Any]) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match=r"capacity.elastic.maxUsdPerHour: 0.01 is less than an hour"):
        cluster(elastic={"max_instances": 8, "max_usd_per_hour": 0.01, "markets": ["on-demand"]})
    assert published(cluster(elastic={"max_instances": 8, "max_usd_per_hour": 0.01})).elastic is not None
