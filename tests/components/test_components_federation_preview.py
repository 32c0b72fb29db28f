"""The preview of a federation: egress from the network, its cost, and errors of the peers."""

from typing import Any

import pytest
from everspot import AwsTrainingCluster
from federated_pair import AWS, GOOGLE, NEIGHBOUR, ON_AWS, ON_GOOGLE, Declare, Pair


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the messages of previews."""
    messages: list[str] = []
    monkeypatch.setattr("pulumi.log.info", lambda words, *_, **__: messages.append(words))
    return messages


def test_a_preview_on_aws_says_what_the_way_out_costs(pair: Pair, messages: list[str]) -> None:
    pair.aws(ON_GOOGLE, preview=True)
    (nat,) = [words for words in messages if "way out" in words]
    assert "at least $0.050 an hour, $36.50 a month, and $0.045 per GB" in nat


def test_a_preview_on_google_says_what_the_way_out_costs(pair: Pair, messages: list[str]) -> None:
    pair.google(ON_AWS, preview=True)
    assert any("Cloud NAT costs" in words and "serves the scheduler alone" in words for words in messages)


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the warnings of previews."""
    messages: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", lambda words, *_, **__: messages.append(words))
    return messages


@pytest.mark.parametrize(
    ("changes", "about"),
    [
        ({}, ["egress lets nothing out of the VPC but to S3", "eu-west-1a, eu-west-1b have no route to 0.0.0.0/0"]),
        ({"egress": {"cidrs": ["0.0.0.0/0"]}}, ["eu-west-1a, eu-west-1b have no route to 0.0.0.0/0"]),
        ({"egress": {"proxy": "http://proxy.corp:3128", "proxy_cidrs": ["10.1.2.0/24"]}}, []),
        ({"federation": [NEIGHBOUR]}, []),
    ],
)
def test_a_preview_warns_where_an_existing_vpc_has_no_way_to_the_peers(
    declare: Declare, spec: Any, warned: list[str], changes: Any, about: list[str]
) -> None:
    existing = {"vpc_id": "vpc-mine", "subnet_ids": ["eu-west-1a", "eu-west-1b"], "federation": [ON_GOOGLE]}
    args: Any = {**{key: value for key, value in spec.items() if key != "zones"}, **existing, **changes}
    declare(lambda: {"id": AwsTrainingCluster(AWS, args).vpc_id}, preview=True)
    warnings = [words for words in warned if "federation leads to another cloud" in words]
    assert len(warnings) == len(about) and all(part in words for part, words in zip(about, warnings, strict=True)), (
        warnings
    )


def test_a_preview_warns_that_an_existing_network_has_to_have_a_way_to_the_peers(pair: Pair, warned: list[str]) -> None:
    where = "projects/host-project"
    existing = {"network": f"{where}/global/networks/shared",
              "subnetwork": f"{where}/regions/europe-west4/subnetworks/subnet-1"}  # fmt: skip
    pair.google(ON_AWS, preview=True, **existing)
    assert any("Cloud NAT, or another way out to port 443, has to serve its subnetwork" in words for words in warned)


def test_a_federation_within_a_region_pays_for_no_way_out(pair: Pair, messages: list[str]) -> None:
    pair.aws(NEIGHBOUR, preview=True)
    assert messages and not any("NAT gateway" in words for words in messages)


@pytest.mark.parametrize("cloud", ["aws", "google"])
def test_everything_that_is_wrong_with_the_peers_is_told_at_once(pair: Pair, cloud: str) -> None:
    wrong = [
        {**ON_AWS, "name": AWS if cloud == "aws" else GOOGLE, "control": "s3://aws-control", "scheduler": "scheduler",
         "scheduler_id": "1"},
        {**ON_GOOGLE, "name": "Gcp", "data": "s3://x?region=eu-west-1", "project_number": "my-project",
         "egress_usd_per_gb": -1},
        {**ON_GOOGLE, "name": "Gcp", "cloud": "azure"},
        {key: value for key, value in ON_GOOGLE.items() if key != "scheduler_id"} | {"name": "everspot-third"},
    ]  # fmt: skip
    with pytest.raises(Exception, match="bad inputs") as refused:
        (pair.aws if cloud == "aws" else pair.google)(*wrong)
    message = str(refused.value)
    for words in (
        "federation[0].name: ", "is this cluster itself",
        "federation[0].control: 's3://aws-control' is not of the form",
        "federation[0].scheduler: 'scheduler' is not of the form arn:aws:iam::ACCOUNT:role/NAME",
        "federation[0].schedulerId: is for clusters on Google Cloud", "federation[1].name: 'Gcp' has to be",
        "federation[1].name: 'Gcp' is named twice", "federation[1].data: ", "is not of the form gs://BUCKET",
        "federation[1].projectNumber: 'my-project' is no number", "federation[1].egressUsdPerGb: ",
        "federation[2].cloud: 'azure' is none; there is aws, gcp", "federation[3].schedulerId: is missing",
    ):  # fmt: skip
        assert words in message, (words, message)


def test_a_nat_gateway_needs_the_last_block_of_the_network(pair: Pair) -> None:
    zones = [f"eu-west-1{letter}" for letter in "abcdefgh"]
    with pytest.raises(Exception, match="zones: at most 7 with a NAT gateway"):
        pair.aws(ON_GOOGLE, zones=zones)
