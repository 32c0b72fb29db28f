"""`everspot doctor` compares the account's vCPU quotas with the declared size of the fleets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Elastic, Manifest, Standing
from everspot_local.cloud import LocalCloud
from everspot_local.options import Options

REGION = "eu-west-1"
WEIGHTS = {"g5.xlarge": 1.0, "g5.12xlarge": 4.0}  # 4 and 48 vCPUs


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCloud]:
    with LocalCloud(Options(state_dir=tmp_path / "local", boot_command=None, region=REGION)) as market:
        for name, value in {
            "AWS_ENDPOINT_URL": market.endpoint,
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_REGION": REGION,
        }.items():
            monkeypatch.setenv(name, value)
        yield market


@pytest.fixture
def quotas(market: LocalCloud, world: Any) -> Any:
    """Return doctor's checks of quotas, by quota code."""
    s3 = boto3.client("s3", endpoint_url=market.endpoint, region_name=REGION)
    s3.create_bucket(Bucket="control-of-test", CreateBucketConfiguration={"LocationConstraint": REGION})
    url = f"s3://control-of-test?region={REGION}"
    manifest = Manifest(
        cluster="test", cloud="aws", region=REGION, control_url=url, data_url=url,
        standing=Standing(on_demand_units=2, spot_units=16, weights=WEIGHTS), scheduler_type="t3.small",
    )  # fmt: skip
    s3.put_object(Bucket="control-of-test", Key="cluster.json", Body=manifest.to_json())
    world.url = url

    def read_checks(elastic: Elastic | None = None) -> Any:
        if elastic is not None:
            launching = manifest.model_copy(update={"elastic": elastic})
            s3.put_object(Bucket="control-of-test", Key="cluster.json", Body=launching.to_json())
            return [c for c in world.run("--json", "doctor").json["checks"] if c["name"] == "quota"]
        checks = [c for c in world.run("--json", "doctor").json["checks"] if c["name"] == "quota"]
        return {code: c for c in checks for code in ("L-3819A6DF", "L-DB2E81BA") if code in c["detail"]}

    return read_checks


def test_doctor_says_whether_the_quotas_reach_the_target(market: LocalCloud, quotas: Any) -> None:
    enough = quotas()
    assert {check["verdict"] for check in enough.values()} == {"ok"}
    assert "768 vCPUs; 16 units of g5.xlarge, g5.12xlarge take 64" in enough["L-3819A6DF"]["detail"]
    assert "2 units" in enough["L-DB2E81BA"]["detail"]
    market.do("quota", code="L-3819A6DF", value=40)
    short = quotas()["L-3819A6DF"]
    assert (short["verdict"], short["group"]) == ("fail", "quota")
    assert "40 vCPUs, enough for 10 of 16 units" in short["detail"]
    assert short["fix"].endswith("/services/ec2/quotas/L-3819A6DF")
    assert quotas()["L-DB2E81BA"]["verdict"] == "ok"  # on-demand has a quota of its own


def test_the_schedulers_machine_takes_of_a_quota_first(market: LocalCloud, quotas: Any) -> None:
    own = Elastic(
        types=["m6i.large"], markets=[Market.ON_DEMAND], max_instances=3, template="lt-1", template_version="1",
        places={},
    )  # fmt: skip
    for value, verdict, remaining in ((8, "ok", "6 vCPUs"), (1, "fail", "0 vCPUs, enough for 0 of 3")):
        market.do("quota", code="L-1216C47A", value=value)
        scheduler, launched = (c for c in quotas(own) if "L-1216C47A" in c["detail"])
        assert (scheduler["verdict"], launched["verdict"]) == (verdict, verdict)
        assert f"{value} vCPUs; the scheduler, t3.small, takes 2" in scheduler["detail"]
        assert remaining in launched["detail"]


def test_doctor_holds_what_may_be_launched_against_what_the_standing_fleets_leave(
    market: LocalCloud, quotas: Any
) -> None:
    elastic = Elastic(
        types=["g5.xlarge"], markets=[Market.SPOT], max_instances=8, template="lt-1", template_version="1", places={}
    )
    # 16 standing units take 64 of them.
    for value, verdict, words in (
        (96, "ok", "32 vCPUs; 8 launched instances of g5.xlarge take 32"),
        (80, "warn", "16 vCPUs, enough for 4 of 8 launched instances of g5.xlarge; all of them take 32"),
        (64, "fail", "0 vCPUs, enough for 0 of 8 launched instances of g5.xlarge"),
    ):
        market.do("quota", code="L-3819A6DF", value=value)
        (check,) = [check for check in quotas(elastic) if "launched" in check["detail"]]
        assert (check["verdict"], words in check["detail"]) == (verdict, True), check
