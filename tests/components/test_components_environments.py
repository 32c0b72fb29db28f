"""The shipped environments are valid, and their idle cost is as documented."""

from collections.abc import Iterator
from typing import Any

import pytest
from everspot.aws.capacity import check_offers
from everspot.aws.checking import check_cluster
from everspot.gcp import checking as gcp_checking
from everspot.kubernetes.checking import check_pool
from everspot_core.capacity.catalogue import zone_region
from everspot_core.validation.problems import Problems
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS
from settings_helpers import loaded, written


@pytest.fixture(scope="module")
def settings() -> Iterator[Any]:
    with loaded() as module:
        yield module


@pytest.mark.parametrize(
    ("stack", "cloud"),
    [
        *(("local", "aws"), ("aws-dev", "aws"), ("aws-prod", "aws")),
        *(("local-gcp", "gcp"), ("gcp-dev", "gcp"), ("gcp-prod", "gcp")),
        ("kubernetes-dev", "kubernetes"),
    ],
)
def test_every_environment_is_sound(settings: Any, stack: str, cloud: str) -> None:
    parsed = settings.read_settings(written(stack), stack=stack)
    checks = {"aws": check_cluster, "gcp": gcp_checking.check_cluster, "kubernetes": check_pool}
    checks[cloud](f"everspot-{stack}", parsed.cluster.args)
    assert parsed.account is None
    assert parsed.clouds == [cloud]
    assert parsed.cluster.args["tags"]["Environment"] == stack


@pytest.mark.parametrize("stack", ["aws-dev", "aws-prod"])
def test_every_environment_names_types_that_all_zones_of_its_region_have(settings: Any, stack: str) -> None:
    # As moto recorded them of AWS. All zones, because an account's us-east-2a is another's us-east-2b.
    cluster = settings.read_settings(written(stack), stack=stack).cluster.args
    region = zone_region(cluster["zones"][0])
    offered = [(o["InstanceType"], o["Location"]) for o in INSTANCE_TYPE_OFFERINGS["availability-zone"][region]]
    assert len(offered) > 1000
    problems = Problems()
    check_offers(
        problems, cluster["capacity"], region=region, zones=sorted({zone for _, zone in offered}), offered=offered
    )
    assert not problems.collected


@pytest.mark.parametrize("stack", ["account", "gcp-account"])
def test_the_account_stack_declares_no_cluster(settings: Any, stack: str) -> None:
    parsed = settings.read_settings(written(stack), stack=stack)
    assert parsed.cluster is None
    assert {"Project", "Team", "Environment"} <= parsed.account.args["tags"].keys()


def test_production_is_protected_and_kept(settings: Any) -> None:
    cluster = settings.read_settings(written("aws-prod"), stack="aws-prod").cluster.args
    assert cluster["protect"] is True
    assert cluster.get("retain_store", True) is True


def test_development_costs_its_scheduler_and_its_buckets_while_nothing_runs(settings: Any) -> None:
    capacity = settings.read_settings(written("aws-dev"), stack="aws-dev").cluster.args["capacity"]
    assert "standing" not in capacity
    assert capacity["elastic"]["max_instances"] == 8
