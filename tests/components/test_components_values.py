"""Texts of settings are bounded and printable, and numbers are in range, on both clouds; errors name the path."""

import copy
import inspect
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from everspot.aws.account import AwsAccountSetupArgs
from everspot.aws.account import account_problems as aws_account_problems
from everspot.aws.args import AwsTrainingClusterArgs
from everspot.aws.bootstrap import AwsBootstrapArgs
from everspot.aws.bootstrap import bootstrap_problems as aws_bootstrap_problems
from everspot.aws.checking import cluster_problems as aws_cluster_problems
from everspot.gcp.args import GcpTrainingClusterArgs
from everspot.gcp.bootstrap import GcpBootstrapArgs
from everspot.gcp.bootstrap import bootstrap_problems as gcp_bootstrap_problems
from everspot.gcp.checking import cluster_problems as gcp_cluster_problems
from everspot_clouds.estimating import environment
from everspot_core.validation.bounds import check_values
from everspot_core.validation.problems import BadInputs, Problems, camel
from gcp_helpers import SPEC as GCP_SPEC
from settings_helpers import Config, loaded, refusal

HOSTILE = ("a\x1b[31mb", "a\n::error::b", "a\u202eb", "a\u2028b", "x" * 100_000, "", " ", "g5.xlarge\n")


@pytest.fixture(scope="module")
def settings() -> Iterator[Any]:
    with loaded() as module:
        yield module


def inputs(settings: Any, kind: Any, types: tuple[type, ...], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every input of the wanted types below a kind; `[]` stands for an entry of a list."""
    kind = settings._bare(kind)
    if typing.is_typeddict(kind):
        for key, inner in inspect.get_annotations(kind).items():
            yield from inputs(settings, inner, types, (*path, key))
    elif typing.get_origin(kind) is list:
        yield from inputs(settings, typing.get_args(kind)[0], types, (*path, "[]"))
    elif kind in types:
        yield path


def planted(settings: Any, kind: Any, path: tuple[str, ...], value: Any) -> Any:
    """The least input of a kind that has a value at a path."""
    kind = settings._bare(kind)
    if not path:
        return value
    if path[0] == "[]":
        return [planted(settings, typing.get_args(kind)[0], path[1:], value)]
    hint = inspect.get_annotations(kind)[path[0]]
    return {**settings._stand_in(kind), path[0]: planted(settings, hint, path[1:], value)}


@pytest.mark.parametrize(
    ("kind", "refuse"),
    [
        (AwsTrainingClusterArgs, lambda problems, args: aws_cluster_problems(problems, "train", args)),
        (GcpTrainingClusterArgs, lambda problems, args: gcp_cluster_problems(problems, "train", args)),
        (AwsAccountSetupArgs, aws_account_problems),
        (AwsBootstrapArgs, aws_bootstrap_problems),
        (GcpBootstrapArgs, gcp_bootstrap_problems),
    ],
    ids=["aws cluster", "google cluster", "aws account", "aws bootstrap", "google bootstrap"],
)
def test_no_text_anywhere_takes_what_nobody_can_see_or_read(settings: Any, spec: Any, kind: Any, refuse: Any) -> None:
    sound = {AwsTrainingClusterArgs: spec, GcpTrainingClusterArgs: GCP_SPEC}.get(kind, settings._stand_in(kind))
    paths = list(inputs(settings, kind, (str,)))
    assert len(paths) > (0 if kind is AwsAccountSetupArgs else 5)
    for number, path in enumerate(paths):
        value = HOSTILE[number % len(HOSTILE)]
        args = {**copy.deepcopy(sound), path[0]: planted(settings, kind, path, value)[path[0]]}
        problems = Problems()
        refuse(problems, args)
        expected_path = ".".join(camel(part) for part in path).replace(".[]", "[0]")
        assert [str(each) for each in problems.collected if each.path == expected_path], (expected_path, value[:20])
        assert all(str(each).isprintable() and len(str(each)) < 700 for each in problems.collected)


@pytest.mark.parametrize("value", [1e-300, 1e300, 10**24, -1, True])
@pytest.mark.parametrize(
    ("kind", "refuse"),
    [
        (AwsTrainingClusterArgs, lambda problems, args: aws_cluster_problems(problems, "train", args)),
        (GcpTrainingClusterArgs, lambda problems, args: gcp_cluster_problems(problems, "train", args)),
    ],
    ids=["aws", "google"],
)
def test_no_number_anywhere_is_taken_that_nobody_can_mean(
    settings: Any, spec: Any, kind: Any, refuse: Any, value: float
) -> None:
    sound = spec if kind is AwsTrainingClusterArgs else GCP_SPEC
    paths = list(inputs(settings, kind, (int, float)))
    assert len(paths) > 15
    for path in paths:
        args = {**copy.deepcopy(sound), path[0]: planted(settings, kind, path, value)[path[0]]}
        problems = Problems()
        refuse(problems, args)
        expected_path = ".".join(camel(part) for part in path).replace(".[]", "[0]")
        assert [each for each in problems.collected if each.path == expected_path], (expected_path, value)


def changed(**capacity: Any) -> dict[str, Any]:
    return {"capacity": {"standing": {"target": 1}, "instanceTypes": ["c6i.large"], **capacity}}


AWS = {
    "cloud": "aws", "tags": {"Project": "p", "Team": "t"}, "imageId": "ami-0123456789abcdef0", "zones": ["eu-west-1a"],
    **changed(),
}  # fmt: skip
GOOGLE = {
    "cloud": "gcp", "tags": {"Project": "p", "Team": "t"}, "imageFamily": "everspot", "zones": ["europe-west4-a"],
    **changed(instanceTypes=["g2-standard-4"]),
}  # fmt: skip


def of_type(**facts: Any) -> dict[str, Any]:
    return changed(instanceTypes=[{"type": "c6i.large", **facts}])


@pytest.mark.parametrize(
    ("base", "change", "path", "reason", "in_review"),
    [
        (AWS, of_type(gpu="T4\x1b[31m"), "capacity.instanceTypes[0].gpu", "is not the name of a GPU", True),
        (AWS, of_type(memoryGib=1e-300), "capacity.instanceTypes[0].memoryGib", "between 0.25 and", True),
        (AWS, of_type(vcpus=101), "capacity.instanceTypes[0].vcpus", "has 2 for c6i.large", True),
        (AWS, of_type(memoryGib=4.5), "capacity.instanceTypes[0].memoryGib", "the catalogue, which has 4", True),
        (AWS, of_type(gpus=1), "capacity.instanceTypes[0].gpus", "contradicts the catalogue, which has no", True),
        (AWS, of_type(arch="riscv"), "capacity.instanceTypes[0].arch", "is none of x86_64, arm64", True),
        (AWS, of_type(onDemandUsdPerHour=1e-9), "capacity.instanceTypes[0].onDemandUsdPerHour", "between 0.0001", True),
        (AWS, {"readBucketArns": ["arn:aws:s3:::*"]}, "readBucketArns[0]", "has a wildcard", True),
        (AWS, {"readBucketArns": ["arn:aws:s3:::a*"]}, "readBucketArns[0]", "has a wildcard", True),
        (AWS, {"readBucketArns": ["arn:aws:s3:::a/b"]}, "readBucketArns[0]", "is not the ARN of a bucket", True),
        (AWS, {"volumeKeyArns": ["arn:aws:kms:us-east-1:123456789012:key/*"]}, "volumeKeyArns[0]", "wildcard", True),
        (AWS, {"secretArns": ["arn:aws:ssm:us-east-1:123456789012:parameter/*"]}, "secretArns[0]", "wildcard", False),
        (AWS, {"readBucketArns": ["arn:aws:s3:::*"], **of_type(vcpus=101)}, "readBucketArns[0]", "wildcard", True),
        (AWS, {"services": ["kms", "kms"]}, "services[1]", "'kms' is listed twice", True),
        (AWS, {"zones": ["eu-west-1a", "eu-west-1a"]}, "zones[1]", "twice", True),
        (AWS, changed(elastic={"maxInstances": 10**23}), "capacity.elastic.maxInstances", "between 0 and 10000", True),
        (AWS, {"tags": {"Project": "p", "Team": "t", "A": "a\u2028b"}}, "tags.A", "", True),
        (GOOGLE, {"readBuckets": [""]}, "readBuckets[0]", "", True),
        (GOOGLE, {"readBuckets": ["a\x07bc"]}, "readBuckets[0]", "", True),
        (GOOGLE, {"readBuckets": ["*"]}, "readBuckets[0]", "is not the name of a bucket", False),
        (GOOGLE, {"readBuckets": ["abc", "abc"]}, "readBuckets[1]", "is listed twice", True),
        (GOOGLE, {"imageFamily": "x" * 100_000}, "imageFamily", "", True),
        (GOOGLE, {"imageFamily": "everspot\n"}, "imageFamily", "", True),
        (GOOGLE, {"imageFamily": "x" * 64}, "imageFamily", "", False),
    ],
)  # fmt: skip
def test_invalid_input_is_refused_by_the_program_and_by_the_review_of_its_file(
    settings: Any,
    monkeypatch: Any,
    base: dict[str, Any],
    change: dict[str, Any],
    path: str,
    reason: str,
    in_review: bool,
) -> None:
    section = {**base, **change}
    choice = settings.CHOICES[base["cloud"]]
    problems = Problems("everspot:cluster")
    parsed = settings.parse(
        problems,
        "",
        {key: value for key, value in section.items() if key != "cloud"},
        choice.cluster_args,
        cloud=choice,
    )
    parsed["tags"] = {"Environment": "dev", **parsed["tags"]}
    choice.cluster_problems(problems, "everspot-dev", parsed)
    reasons = {each.path: each.reason for each in problems.collected}
    assert reason in reasons[f"everspot:cluster.{path}"], reasons
    region = {"aws": "eu-west-1", "gcp": "europe-west4"}[base["cloud"]]
    config = {f"{base['cloud']}:region": region, "everspot:cluster": section}
    if not in_review:
        return
    with pytest.raises(BadInputs) as refused:
        environment("dev", config, "everspot")
    assert f"everspot:cluster.{path}" in [each.path for each in refused.value.problems], refused.value


def test_figures_that_the_author_insists_on_are_taken() -> None:
    section = {**AWS, **of_type(vcpus=101, memoryGib=4.5, override=True, onDemandUsdPerHour=0.2)}
    environment("dev", {"aws:region": "eu-west-1", "everspot:cluster": section}, "everspot")


def test_sound_settings_and_values_that_are_not_known_yet_are_taken() -> None:
    problems = Problems()
    check_values(
        problems,
        {"tags": {"A": "", "Cost_Center": "é 1"}, "zones": ["a", "b"], "image_id": object()},
    )
    check_values(problems, {"shares": {"Team A": 1.0}, "capacity": {"instance_types": [{"type": "a"}, {"type": "a"}]}})
    assert problems.collected == ()


def test_a_name_of_a_setting_with_an_escape_does_not_reach_the_terminal(settings: Any) -> None:
    text = refusal(settings, Config(cluster={**AWS, "odd\x1b[31m\n::error::x": 1}))
    assert "\x1b" not in text and "\n::error" not in text and "\\x1b[31m" in text
