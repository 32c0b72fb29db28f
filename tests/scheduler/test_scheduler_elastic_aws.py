"""Launches through boto3 against the local cloud: every form of request, every kind of refusal, and the reaction."""

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import boto3
import pytest
from elastic_helpers import TYPE, ZONE, LocalAccount, spot_role
from everspot_clouds.aws.cloud import AwsCloud
from everspot_clouds.base import Phase
from everspot_core.capacity.launching import LaunchIntent, LaunchPool, LaunchTrouble, store_mark
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.records import Market
from everspot_store import ManualClock

CONTROL_URL = "s3://control"
OTHER = "m6i.large"
SPOT_QUOTA = "L-34B43A08"  # standard instances, in vCPUs


@pytest.fixture
def account(local: LocalAccount) -> Iterator[LocalAccount]:
    """Empty, and all pools as they are at the beginning."""
    yield local
    for kind in (TYPE, OTHER):
        local.cloud.do("recover", pool=f"{kind}/{ZONE}")
        local.cloud.do("price", pool=f"{kind}/{ZONE}", usd=0.03)
    local.cloud.do("quota", code=SPOT_QUOTA, value=1000)
    spot_role()


@pytest.fixture
def cloud(account: LocalAccount) -> Iterator[AwsCloud]:
    urls = {"control_url": CONTROL_URL, "data_url": "s3://data"}
    manifest = Manifest(cluster=f"c-{uuid4().hex[:6]}", cloud="aws", region="us-east-1", **urls)
    cloud = AwsCloud.open(manifest, ManualClock())
    yield cloud
    cloud.terminate(i.instance_id for i in cloud.instances() if i.phase is Phase.ALIVE)
    cloud.close()


def intent(account: LocalAccount, market: Market = Market.SPOT, count: int = 1, **update: object) -> LaunchIntent:
    prices = update.pop("max_price", None)
    pools = [
        LaunchPool(instance_type=kind, zone=ZONE, market=market, place=account.subnet, max_price=prices)
        for kind in (TYPE, OTHER)
    ]
    fields = {
        "seq": 1, "token": store_mark(CONTROL_URL) + uuid4().hex[8:],
        "jobs": tuple(f"j{n}" for n in range(count)), "pools": tuple(pools),
        "ordered": False, "whole": False, "template": account.template, "template_version": "1", "usd_per_hour": 1.0,
        "made_at": datetime.now(UTC), "scheduler_id": "s",
    }  # fmt: skip
    return LaunchIntent.model_validate(fields | update)


@pytest.mark.parametrize("market", list(Market))
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_every_way_to_launch_is_one_that_ec2_takes_and_is_done_once(account, cloud, market, ordered, whole):
    launch_intent = intent(account, market, 2, ordered=ordered, whole=whole)
    answer, again = cloud.launch(launch_intent), cloud.launch(launch_intent)
    assert (len(answer.instances), answer.errors) == (2, ())
    assert {i.instance_id for i in again.instances} == {i.instance_id for i in answer.instances}
    described = [i for i in cloud.instances() if i.phase is Phase.ALIVE]
    assert {(i.launch, i.market, i.zone) for i in described} == {(launch_intent.token, market, ZONE)}
    assert {(i.instance_id, i.instance_type) for i in described} == {
        (i.instance_id, i.instance_type) for i in answer.instances
    }
    if ordered:
        assert {i.instance_type for i in described} == {TYPE}


def dry(account: LocalAccount) -> None:
    for kind in (TYPE, OTHER):
        account.cloud.do("drought", pool=f"{kind}/{ZONE}")


def dear(account: LocalAccount) -> None:
    for kind in (TYPE, OTHER):
        account.cloud.do("price", pool=f"{kind}/{ZONE}", usd=0.05)


def full(account: LocalAccount) -> None:
    account.cloud.do("quota", code=SPOT_QUOTA, value=2)


def without_role(account: LocalAccount) -> None:
    iam = boto3.client("iam", region_name="us-east-1")
    iam.delete_service_linked_role(RoleName="AWSServiceRoleForEC2Spot")
    iam.close()


@pytest.mark.parametrize(
    ("cause", "kind", "brought"),
    [
        (dry, LaunchTrouble.CAPACITY, 0),
        (dear, LaunchTrouble.PRICE, 0),
        (full, LaunchTrouble.QUOTA, 1),
        (without_role, LaunchTrouble.CREDENTIALS, 0),
    ],
)
def test_a_pool_that_gives_less_says_why(account, cloud, cause, kind, brought):
    cause(account)
    answer = cloud.launch(intent(account, count=3, max_price=0.04))
    assert len(answer.instances) == brought
    assert {(e.kind, e.zone, e.market) for e in answer.errors} == {(kind, ZONE, Market.SPOT)}
    assert {e.instance_type for e in answer.errors} == {TYPE, OTHER}


def test_all_or_nothing_is_nothing_where_there_is_too_little(account, cloud):
    full(account)
    answer = cloud.launch(intent(account, count=3, whole=True))
    assert answer.instances == () and answer.errors
    assert [i for i in cloud.instances() if i.phase is Phase.ALIVE] == []


def test_a_template_that_is_not_there_is_a_wrong_request(account, cloud):
    answer = cloud.launch(intent(account, template="lt-0123456789abcdef0"))
    assert [(e.kind, e.instance_type) for e in answer.errors] == [(LaunchTrouble.REQUEST, "")]


def test_instances_end_whatever_else_is_named_with_them(account, cloud):
    brought = [i.instance_id for i in cloud.launch(intent(account, count=2)).instances]
    cloud.terminate([brought[0], "i-0123456789abcdef0", brought[1]])
    assert [i for i in cloud.instances() if i.phase is Phase.ALIVE] == []
    cloud.terminate(brought)
