"""The prices for checking components: from the project's file, else from the price lists, else one warning."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import boto3
import pytest
from everspot.capacity import check_prices
from everspot.custom_types import declared_types
from everspot.pricing import declared_prices
from everspot_clouds.price_files import cache_folder, write_table
from everspot_core.capacity.catalogue import InstanceType, builtin
from everspot_core.capacity.fleet import CapacitySpec, TypeChoice
from everspot_core.capacity.price_table import PriceTable, TypePrice
from everspot_core.validation.problems import Problems
from moto.ec2.models.instance_types import INSTANCE_TYPES

NEW = InstanceType(name="g9.xlarge", vcpus=4, memory_gib=16, gpus=1, gpu="L9", gpu_memory_gib=48)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # which keeps the credentials of another test's client
    (tmp_path / "Pulumi.yaml").write_text("name: p\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems_in(region: str, name: str) -> list[str]:
    problems = Problems()
    args = {"instance_types": [{"type": name}]}
    check_prices(problems, args, CapacitySpec(target=0, types=(TypeChoice(name=name),)), region)
    return [str(problem) for problem in problems.collected]


def test_without_a_price_and_without_credentials_one_sentence_names_the_command() -> None:
    (problem,) = problems_in("eu-south-2", "g5.xlarge")
    assert "no price of g5.xlarge in eu-south-2 is known" in problem
    assert "the price lists cannot be asked" in problem and "redentials" in problem
    assert "`everspot cost prices refresh --region eu-south-2`" in problem
    assert problems_in("us-east-1", "g5.xlarge") == []


def test_a_projects_file_has_prices_and_types_and_goes_with_the_cluster(project: Path) -> None:
    rows = [
        TypePrice(instance_type="g5.xlarge", on_demand_usd_per_hour=1.2, spot_usd_per_hour={"eu-south-1a": 0.4}),
        TypePrice(instance_type="g9.xlarge", on_demand_usd_per_hour=2.0),
    ]
    table = PriceTable(
        cloud="aws", region="eu-south-1", as_of=datetime(2026, 11, 1, tzinfo=UTC), on_demand_source="list",
        spot_source="spot", prices=rows, types=[NEW],
    )  # fmt: skip
    write_table(project / "prices", table)
    assert problems_in("eu-south-1", "g5.xlarge") == problems_in("eu-south-1", "g9.xlarge") == []
    assert declared_types([{"type": "g9.xlarge"}, {"type": "g5.xlarge"}]) == [NEW]
    prices = declared_prices("aws", "eu-south-1", ["g9.xlarge", "t3.small"])
    assert prices is not None and prices.as_of == table.as_of
    assert [(row.instance_type, row.on_demand_usd_per_hour) for row in prices.prices] == [("g9.xlarge", 2.0)]
    assert declared_prices("aws", "us-east-1", ["g5.xlarge", "t3.small"]) is None
    (problem,) = problems_in("eu-south-1", "g6.xlarge")  # the project's file decides: nobody is asked
    assert "cannot be asked" not in problem


class Lists:
    """A client of the price list and of EC2 that knows one type."""

    operations: ClassVar[list[str]] = []

    def get_paginator(self, name: str) -> "Lists":
        self.operations.append(name)
        return self

    def paginate(self, **_: Any) -> Any:
        product = (
            '{"product": {"attributes": {"instanceType": "g6.xlarge"}}, "terms": {"OnDemand": {"a": '
            '{"priceDimensions": {"b": {"unit": "Hrs", "pricePerUnit": {"USD": "0.9"}}}}}}}'
        )
        kinds = [{"InstanceType": "g6.xlarge", **INSTANCE_TYPES["g6.xlarge"]}]
        yield {"PriceList": [product], "InstanceTypes": kinds, "SpotPriceHistory": []}


def test_a_preview_asks_the_price_lists_once_and_keeps_the_answer_for_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    Lists.operations.clear()
    monkeypatch.setattr(boto3, "client", lambda *_, **__: Lists())
    assert problems_in("ca-west-1", "g6.xlarge") == []
    queries = len(Lists.operations)
    assert queries > 0 and problems_in("ca-west-1", "g6.xlarge") == []
    prices = declared_prices("aws", "ca-west-1", ["g6.xlarge"])
    assert prices is not None and prices.prices[0].on_demand_usd_per_hour == 0.9
    assert len(Lists.operations) == queries
    assert (cache_folder() / "aws-ca-west-1.json").is_file()
    assert builtin().on_demand("g6.xlarge", "ca-west-1") is None
