"""Instance types from EC2's own descriptions, as moto has recorded them, agree with the catalogue."""

from typing import Any

import pytest
from everspot_clouds.aws.instance_types import GPU_PATTERNS, describe, parse
from everspot_clouds.registry import provider
from everspot_core.capacity.catalogue import builtin
from everspot_local.cloud import LocalCloud
from everspot_local.options import Options
from moto.ec2.models.instance_types import INSTANCE_TYPES

KNOWN = [name for name in builtin().types if name in INSTANCE_TYPES]


def raw(name: str) -> dict[str, Any]:
    return {"InstanceType": name, **INSTANCE_TYPES[name]}


@pytest.mark.parametrize("name", KNOWN)
def test_a_description_has_the_figures_of_the_catalogue(name: str) -> None:
    described, listed = parse(raw(name)), builtin().types[name]
    assert described is not None
    newer = {"efa_interfaces", "nvswitch"}
    assert described.model_dump(exclude=newer) == listed.model_dump(exclude=newer)


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("g6e.8xlarge", {"vcpus": 32, "gpus": 1, "gpu": "L40S", "gpu_memory_gib": 44.7, "efa_interfaces": 1}),
        ("g6f.large", {"gpus": 1, "gpu": "L4", "gpu_memory_gib": 2.79, "nvswitch": False}),
        ("g7e.48xlarge", {"gpus": 8, "gpu": "RTX PRO 6000", "gpu_memory_gib": 96, "nvswitch": False}),
        ("p4de.24xlarge", {"gpu": "A100-80GB", "gpus": 8, "nvswitch": True, "efa_interfaces": 4}),
        ("p5.4xlarge", {"gpu": "H100", "gpus": 1, "nvswitch": False}),
        ("p5.48xlarge", {"local_nvme_gb": 30400, "efa_interfaces": 32, "nvswitch": True}),
        ("p6-b300.48xlarge", {"gpu": "B300", "gpus": 8, "nvswitch": True, "efa_interfaces": 16}),
        ("m6i.large", {"gpus": 0, "gpu": None, "efa_interfaces": 0, "nvswitch": False}),
    ],
)
def test_types_of_this_year_are_read(name: str, facts: dict[str, Any]) -> None:
    described = parse(raw(name))
    assert described is not None
    assert described.model_dump(include=set(facts)) == facts


@pytest.mark.parametrize("name", ["g4ad.xlarge", "trn1.2xlarge", "inf2.xlarge", "mac2.metal"])
def test_what_cannot_train_is_left_out(name: str) -> None:
    if name in INSTANCE_TYPES:
        assert parse(raw(name)) is None


def test_a_series_that_is_newer_than_the_list_has_an_unknown_switch() -> None:
    newer = {**raw("p5.48xlarge"), "InstanceType": "p7.48xlarge"}
    described = parse(newer)
    assert described is not None and described.nvswitch is None


def test_a_description_without_a_field_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"ec2:DescribeInstanceTypes.*MemoryInfo"):
        parse({key: value for key, value in raw("m6i.large").items() if key != "MemoryInfo"})


def test_all_types_with_gpus_are_found_by_the_beginning_of_their_names(tmp_path, monkeypatch) -> None:
    import boto3

    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "a")
    pages: list[int] = []
    with LocalCloud(Options(state_dir=tmp_path, boot_command=None, region="us-east-1")) as local:
        monkeypatch.setenv("AWS_ENDPOINT_URL", local.endpoint)
        ec2 = boto3.client("ec2", region_name="us-east-1")
        names = {kind.name for kind in describe(ec2, ["m6i.large", "zz.none", *GPU_PATTERNS], lambda: pages.append(1))}
        table = provider("aws").price_table(
            "us-east-1", ["m6i.large", "zz.none"], local.market.clock.now(), lambda: None, gpu_types=True
        )
    assert {"m6i.large", "g6e.24xlarge", "gr6f.4xlarge", "p6-b300.48xlarge"} <= names
    assert not {"zz.none", "m6i.xlarge"} & names and pages
    assert table.unpriced["zz.none"] == "EC2 does not offer it in us-east-1"
    assert {row.instance_type for row in table.prices} >= {"m6i.large", "g5.xlarge", "p5.48xlarge"}
