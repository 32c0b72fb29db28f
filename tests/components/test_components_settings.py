"""Settings of a stack: the components' own inputs in camelCase; one error reports every mistake."""

import inspect
import json
import sys
import typing
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pulumi
import pytest
from everspot.aws.checking import check_cluster
from everspot_core.validation.problems import camel
from settings_helpers import Config, loaded, refusal, written


@pytest.fixture(scope="module")
def settings() -> Iterator[Any]:
    with loaded() as module:
        yield module


def test_every_mistake_is_told_at_once(settings: Any) -> None:
    config = Config(
        cluster={
            "cloud": "aws",
            "tags": {"Project": 3},
            "zone": ["a"],
            "protect": "yes",
            "limits": {"leaseTtl": 15},
            "capacity": {
                "target": 5,
                "standing": {"target": "five", "onDemandBase": 1.5},
                "elastic": {"maxInstance": 8, "markets": "spot", "maxUsdPerHour": "1"},
                "instanceTypes": [{"typ": "g5.xlarge"}, "g6.xlarge"],
            },
        }
    )
    with pytest.raises(pulumi.RunError) as refused:
        settings.read_settings(config, stack="dev")
    text = str(refused.value)
    for part in (
        "everspot:cluster.tags.Project: has to be a text, not 3: put it into quotes",
        "everspot:cluster.zone: is not a setting (did you mean zones",
        "everspot:cluster.protect: has to be true or false, not 'yes'",
        "everspot:cluster.capacity.target: is not a setting; there are elastic, instanceTypes, maxPrice, standing",
        "everspot:cluster.limits.leaseTtl: has to be a text, not 15: in quotes, and a duration with its unit",
        "everspot:cluster.capacity.standing.target: has to be a whole number, not 'five'",
        "everspot:cluster.capacity.standing.onDemandBase: has to be a whole number, not 1.5",
        "everspot:cluster.capacity.elastic.maxInstance: is not a setting (did you mean maxInstances",
        "everspot:cluster.capacity.elastic.maxInstances: is missing",
        "everspot:cluster.capacity.elastic.markets: has to be a list, not 'spot'",
        "everspot:cluster.capacity.elastic.maxUsdPerHour: has to be a number, not '1'",
        "everspot:cluster.capacity.instanceTypes[0].typ: is not a setting",
        "everspot:cluster.capacity.instanceTypes[0].type: is missing",
    ):
        assert part in text


def test_what_the_components_refuse_is_told_with_what_is_misspelt(settings: Any, monkeypatch: Any) -> None:
    region_zones = lambda: ("eu-west-1", ["eu-west-1a", "eu-west-1b"])  # noqa: E731
    monkeypatch.setattr(sys.modules["choice_aws"], "CHOICE", replace(settings.CHOICES["aws"], zones_now=region_zones))
    planted = {
        "cloud": "aws",
        "tags": {**TAGS, "aws:x": "1"},
        "zone": ["eu-west-1a"],
        "zones": ["eu-west-1a", "eu-west-1z"],
        "imageId": "ami-0123456789abcdef0",
        "limits": {"leaseTtl": 15},
        "capacity": {
            "standing": {"target": "five", "onDemandBase": 9, "onDemandPercentage": 120},
            "instanceTypes": ["m7i.lrage"],
        },
    }
    text = refusal(settings, Config(cluster=planted))
    lines = text.splitlines()[1:]
    assert [line.split(": ")[0].removeprefix("  - everspot:cluster.") for line in lines] == [
        "zone",
        "capacity.standing.target",
        "limits.leaseTtl",
        "tags.aws:x",
        "capacity.standing.onDemandPercentage",
        "capacity.instanceTypes[0].type",
        "zones[1]",
    ], text
    assert "m7i.lrage is not in the catalogue (did you mean m7i.large" in text
    assert "nan" not in text
    # With a target that is a number, its base can be judged as well, and each limit has one line.
    capacity = {**planted["capacity"], "standing": {**planted["capacity"]["standing"], "target": 5}}
    text = refusal(settings, Config(cluster={**planted, "limits": {"leaseTtl": "5s"}, "capacity": capacity}))
    assert "capacity.standing.onDemandBase: 9 is above the target of 5" in text
    assert text.count("limits.leaseTtl") == 1


def test_nothing_is_blamed_for_what_another_input_lacks(settings: Any) -> None:
    text = refusal(settings, Config(cluster={"cloud": "aws", "tags": 3, "imageId": "ami-1", "zones": ["eu-west-1a"]}))
    assert text.splitlines()[1:] == [
        "  - everspot:cluster.tags: has to be a mapping of texts, not 3",
        "  - everspot:cluster.capacity: is missing",
    ]
    standing = {"standing": {"target": 1, "capacityRebalance": {"terminationDelay": "long"}}}
    cluster = {**CLUSTER, "imageId": "ami-1", "zones": ["eu-west-1a"], "capacity": {**CAPACITY, **standing}}
    text = refusal(settings, Config(cluster=cluster))
    assert text.count("\n") == 1, text


def test_an_account_is_judged_in_the_same_round(settings: Any) -> None:
    text = refusal(settings, Config(account={"cloud": "aws", "tags": TAGS, "spotRol": False, "volumeKeyArns": ["k"]}))
    assert "everspot:account.spotRol: is not a setting" in text
    assert "everspot:account.volumeKeyArns[0]: " in text


@pytest.mark.parametrize("handed_on", ["2026-01-31 00:00:00 +0000 UTC", "2026-01-31T00:00:00Z"])
def test_a_date_without_quotes_is_refused_with_the_quoted_form(settings: Any, handed_on: str) -> None:
    cluster = {**CLUSTER, "tags": {**TAGS, "Since": handed_on}, "imageId": handed_on, "zones": ["eu-west-1a"]}
    text = refusal(settings, Config(cluster=cluster))
    for path in ("tags.Since", "imageId"):
        assert f'everspot:cluster.{path}: is a date to the engine: put it into quotes, "2026-01-31"' in text


def test_an_empty_stack_says_what_it_may_declare(settings: Any) -> None:
    with pytest.raises(pulumi.RunError, match="everspot:account, everspot:cluster or both"):
        settings.read_settings(Config(), stack="dev")


CAPACITY = {"instanceTypes": ["g5.xlarge"], "standing": {"target": 1}}
TAGS = {"Project": "vision", "Team": "ml"}
CLUSTER = {"cloud": "aws", "tags": TAGS, "capacity": CAPACITY}


def test_an_existing_vpc_can_be_written_into_a_stack_file(settings: Any) -> None:
    config = Config(cluster={**CLUSTER, "vpcId": "vpc-1", "subnetIds": ["subnet-1"]})
    args = settings.read_settings(config, stack="dev").cluster.args
    assert (args["vpc_id"], args["subnet_ids"]) == ("vpc-1", ["subnet-1"])


def test_the_weights_of_teams_can_be_written_into_a_stack_file(settings: Any) -> None:
    config = Config(cluster={**CLUSTER, "shares": {"vision": 2, "audio": 0.5}})
    assert settings.read_settings(config, stack="dev").cluster.args["shares"] == {"vision": 2, "audio": 0.5}
    text = refusal(settings, Config(cluster={**CLUSTER, "shares": {"vision": "2", "audio": True}}))
    assert "everspot:cluster.shares.vision: has to be a number, not '2'\n" in text
    assert "everspot:cluster.shares.audio: has to be a number, not True" in text
    assert "shares: has to be a mapping of numbers, not [2]" in refusal(
        settings, Config(cluster={**CLUSTER, "shares": [2]})
    )


@pytest.mark.parametrize(
    ("cloud", "message"),
    [
        ({}, "is missing"),
        ({"cloud": "asw"}, "'asw' is none (did you mean aws?)"),
        ({"cloud": ["aws"]}, "['aws'] is none (did you mean aws?)"),
    ],
)
def test_the_cloud_of_a_section_is_one_that_there_is(settings: Any, cloud: dict[str, Any], message: str) -> None:
    text = refusal(settings, Config(cluster={"tags": TAGS, "capacity": CAPACITY, **cloud}))
    assert f"everspot:cluster.cloud: {message}; there is aws" in text


def test_of_many_mistakes_the_first_are_told_and_the_rest_is_counted(settings: Any) -> None:
    text = refusal(settings, Config(cluster={"cloud": "aws", **{f"zone{'s' * 25}{n}": 1 for n in range(5_000)}}))
    assert "has 5,004 bad inputs" in text  # tags, capacity, an image and zones are missing
    assert text.count("\n  - ") == 20
    assert text.endswith("… and 4,984 more")
    assert len(text) < 5_000
    few = refusal(settings, Config(cluster={"cloud": "aws", **{f"zone{'s' * 25}{n}": 1 for n in range(16)}}))
    assert (few.count("\n  - "), "… and" in few) == (20, False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 900 + "]" * 900, "is nested deeper than 12 levels"),
        ("[" * 100_000, "is nested deeper than 12 levels"),
        ('{"tags": "' + "x" * 300_000 + '"}', "has 300012 characters; a section holds 262144"),
        ('{"tags": NaN}', "has to be a mapping of plain values"),
        ('{"tags": 1' + "0" * 5_000 + "}", "has to be a mapping of plain values"),
        ("plain", "has to be a mapping of plain values, not 'plain'"),
        ("null", "is empty"),
        ("[]", "has to be a mapping, not []"),
    ],
)
def test_what_no_section_can_be_is_refused_before_it_is_read(settings: Any, text: str, reason: str) -> None:
    config = Config()
    config.values["cluster"] = text
    assert f"everspot:cluster: {reason}" in refusal(settings, config)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 400])
def test_a_number_that_is_none_is_refused_by_its_field(settings: Any, number: str) -> None:
    config = Config()
    config.values["cluster"] = f'{{"cloud": "aws", "shares": {{"vision": {number}}}}}'
    assert "everspot:cluster.shares.vision: has to be a number, not " in refusal(settings, config)


def test_long_values_are_cut(settings: Any) -> None:
    text = refusal(settings, Config(cluster={**CLUSTER, "protect": "y" * 100_000}))
    assert "protect: has to be true or false, not 'yyy" in text
    assert len(text) < 500


def test_the_stacks_own_name_is_named_where_it_does_not_fit(settings: Any) -> None:
    config = Config(cluster={**CLUSTER, "zones": ["eu-west-1a"], "imageId": "ami-1"})
    with pytest.raises(pulumi.RunError, match="the stack's name has 24 characters and may have 23"):
        settings.read_settings(config, stack="s" * 24)
    with pytest.raises(pulumi.RunError, match="the stack's name, 'Dev_1', names the cluster: lower-case"):
        settings.read_settings(config, stack="Dev_1")
    for stack in ("bootstrap", "bootstrap-eu"):
        with pytest.raises(pulumi.RunError, match="begin with everspot-bootstrap- are the bootstrap's"):
            settings.read_settings(config, stack=stack)
    assert settings.read_settings(config, stack="bootstraps").cluster is not None
    parsed = settings.read_settings(config, stack="s" * 23)
    check_cluster(settings.cluster_name("s" * 23), parsed.cluster.args)


def test_what_only_another_cloud_has_is_refused_by_its_name_with_what_to_do_instead(settings: Any) -> None:
    config = written("gcp-dev")
    section = json.loads(config.values["cluster"])
    section |= {"sessionManager": True, "nets": 1}
    section["capacity"]["maxPrice"] = 1.5
    section["capacity"]["instanceTypes"].append({"type": "a2-highgpu-1g", "weight": 2})
    config.values["cluster"] = json.dumps(section)
    with pytest.raises(pulumi.RunError) as raised:
        settings.read_settings(config, stack="gcp-dev")
    message = str(raised.value)
    assert (
        "everspot:cluster.sessionManager: is another cloud's setting: people come in through Identity-Aware" in message
    )
    assert (
        "everspot:cluster.capacity.maxPrice: is another cloud's setting: Google Cloud takes no maximum price" in message
    )
    assert "instanceTypes[3].weight: is another cloud's setting: a group counts machines" in message
    assert "everspot:cluster.nets: is not a setting" in message
    other = written("aws-dev")
    section = json.loads(other.values["cluster"]) | {"imageFamily": "everspot-dev"}
    with pytest.raises(pulumi.RunError, match="imageFamily: is another cloud's setting: an image's id is in a param"):
        settings.read_settings(Config(cluster=section), stack="aws-dev")


def test_what_a_cloud_lacks_no_component_of_it_has_and_one_of_another_does(settings: Any) -> None:
    choices = {name: settings.CHOICES[name] for name in settings.CHOICES}
    paths = {name: set(_paths(cloud.cluster_args)) for name, cloud in choices.items()}
    for name, cloud in choices.items():
        others = set().union(*(cloud_paths for other, cloud_paths in paths.items() if other != name))
        assert set(cloud.lacks) & paths[name] == set()
        assert set(cloud.lacks) <= others
        # After a move of a settings file to the other cloud, the error lists every setting.
        assert {path for path in others - paths[name] if path.rpartition(".")[0] not in cloud.lacks} == {
            path for path in cloud.lacks if path.rpartition(".")[0] not in cloud.lacks
        }


def _paths(kind: Any, before: str = "") -> Iterator[str]:
    """Every setting of a component, without positions in lists."""
    for key, hint in inspect.get_annotations(kind).items():
        path = f"{before}{camel(key)}"
        yield path
        for inner in _mappings(hint):
            yield from _paths(inner, f"{path}.")


def _mappings(hint: Any) -> Iterator[Any]:
    if typing.is_typeddict(hint):
        yield hint
    for part in typing.get_args(hint):
        yield from _mappings(part)
