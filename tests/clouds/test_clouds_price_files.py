"""A project's price files: their folder, the prices that they replace, and errors of bad files."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from everspot_clouds.price_files import (
    BadPriceFile,
    find_project,
    load_catalogue,
    project_prices,
    project_tables,
    write_table,
)
from everspot_core.capacity.catalogue import InstanceType, builtin
from everspot_core.capacity.price_table import PriceTable, TypePrice

AT = datetime(2026, 11, 1, tzinfo=UTC)
NEW = InstanceType(name="g9.xlarge", vcpus=4, memory_gib=16, gpus=1, gpu="L9", gpu_memory_gib=48)


def table(region: str = "eu-central-1", usd: float = 1.258, day: datetime = AT) -> PriceTable:
    rows = [
        TypePrice(instance_type="g5.xlarge", on_demand_usd_per_hour=usd, spot_usd_per_hour={f"{region}a": usd / 2}),
        TypePrice(instance_type="g9.xlarge", on_demand_usd_per_hour=2.0),
    ]
    return PriceTable(
        cloud="aws", region=region, as_of=day, on_demand_source="list", spot_source="spot", prices=rows, types=[NEW]
    )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "project"
    (folder / "stacks").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text("name: p\n")
    monkeypatch.chdir(folder / "stacks")
    return folder


def test_a_file_of_the_project_has_prices_and_types_that_the_catalogue_lacks(project: Path) -> None:
    assert load_catalogue() is builtin()
    path = write_table(project / "prices", table())
    assert (path.name, find_project()) == ("aws-eu-central-1.json", project)
    catalogue = load_catalogue()
    price = catalogue.on_demand("g5.xlarge", "eu-central-1")
    assert price is not None and (price.usd_per_hour, price.as_of, price.source) == (1.258, AT.date(), "list")
    assert catalogue.types["g9.xlarge"] == NEW and catalogue.types["g5.xlarge"] == builtin().types["g5.xlarge"]
    assert catalogue.on_demand("g5.xlarge", "us-east-1") == builtin().on_demand("g5.xlarge", "us-east-1")
    write_table(project / "prices", table(usd=1.3))
    newer = load_catalogue().on_demand("g5.xlarge", "eu-central-1")
    assert newer is not None and newer.usd_per_hour == 1.3


def test_the_projects_file_counts_before_the_clusters_table_and_settings_before_both(project: Path) -> None:
    cluster = table(usd=9.0, day=datetime(2026, 11, 20, tzinfo=UTC))
    before = load_catalogue(cluster=[cluster]).on_demand("g5.xlarge", "eu-central-1")
    assert before is not None and before.usd_per_hour == 9.0
    write_table(project / "prices", table())
    catalogue = load_catalogue(cluster=[cluster])
    price = catalogue.on_demand("g5.xlarge", "eu-central-1")
    assert price is not None and price.usd_per_hour == 1.258
    own = builtin().types["g5.xlarge"].model_copy(update={"on_demand_usd_per_hour": 0.5})
    declared = catalogue.with_types([own]).on_demand("g5.xlarge", "eu-central-1")
    assert declared is not None and declared.usd_per_hour == 0.5


def test_a_table_that_a_preview_asked_for_counts_for_a_week_and_below_all_others(project: Path) -> None:
    from everspot_clouds.price_files import cache_folder

    write_table(cache_folder(), table(usd=7.0))
    fresh, old = (load_catalogue(now=datetime(2026, 11, day, tzinfo=UTC)) for day in (2, 20))
    price = fresh.on_demand("g5.xlarge", "eu-central-1")
    assert price is not None and price.usd_per_hour == 7.0
    assert old.on_demand("g5.xlarge", "eu-central-1") is None
    write_table(project / "prices", table())
    above = load_catalogue(now=datetime(2026, 11, 2, tzinfo=UTC)).on_demand("g5.xlarge", "eu-central-1")
    assert above is not None and above.usd_per_hour == 1.258


def test_prices_may_stand_for_a_project_elsewhere(project: Path) -> None:
    with project_prices([table("ap-northeast-1", 1.459)]):
        price = load_catalogue().on_demand("g5.xlarge", "ap-northeast-1")
    assert price is not None and price.usd_per_hour == 1.459
    assert load_catalogue().on_demand("g5.xlarge", "ap-northeast-1") is None


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("aws-eu-central-1.json", "{", "is no price table"),
        ("aws-eu-central-1.json", '{"cloud": "aws"}', "everspot cost prices refresh"),
        ("aws-eu-west-3.json", "", "its name has to be aws-eu-central-1.json"),
    ],
)
def test_a_bad_file_is_named(project: Path, name: str, text: str, words: str) -> None:
    path = write_table(project / "prices", table())
    if text:
        path.write_text(text)
    else:
        path.rename(path.with_name(name))
    with pytest.raises(BadPriceFile, match=words) as refused:
        project_tables()
    assert name in str(refused.value)
