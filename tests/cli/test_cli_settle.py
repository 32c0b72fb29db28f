"""The report of a cluster in the local cloud's market equals the market's own log."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from everspot_core.cluster.manifest import Manifest
from everspot_local.cloud import LocalCloud
from everspot_local.market.delays import Delays
from everspot_local.options import Options

from tests.cli.test_cli_down import BUCKET, ground  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[2]
SCALE = 1800.0  # half an hour in a second


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCloud]:
    # EC2 lists ended instances for an hour, which would be two seconds here.
    delays = Delays(remembered=timedelta(days=30))
    with LocalCloud(Options(state_dir=tmp_path / "local", scale=SCALE, boot_command=None, delays=delays)) as market:
        for name, value in environment(market).items():
            monkeypatch.setenv(name, value)
        yield market


def environment(market: LocalCloud) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": market.endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "EVERSPOT_CLOCK": market.market.clock.variable,
    }


def launch(ec2: Any, kind: str, zone: str, spot: bool) -> str:
    market = {"InstanceMarketOptions": {"MarketType": "spot"}} if spot else {}
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "everspot:cluster", "Value": "test"}]}]
    (instance,) = ec2.run_instances(
        ImageId="ami-12c6146b", InstanceType=kind, MinCount=1, MaxCount=1,
        Placement={"AvailabilityZone": zone}, TagSpecifications=tags, **market,
    )["Instances"]  # fmt: skip
    return str(instance["InstanceId"])


def wait_for_ends(market: LocalCloud, count: int) -> None:
    """Instances ended, by the market's own log; and a moment of market time more."""
    end = time.monotonic() + 60
    while sum(line["event"] == "end" for line in market.market.log.read()) < count:
        assert time.monotonic() < end, "they did not end"
        time.sleep(0.05)
    time.sleep(0.5)


def test_a_report_of_this_moment_equals_the_markets_own_log_without_any_scheduler(world, market, tmp_path):
    s3, ec2, iam = (boto3.client(name, region_name="us-east-1") for name in ("s3", "ec2", "iam"))
    iam.create_service_linked_role(AWSServiceName="spot.amazonaws.com")
    for bucket in ("control", "data"):
        s3.create_bucket(Bucket=bucket)
    manifest = Manifest(
        cluster="test", cloud="aws", region="us-east-1", control_url="s3://control", data_url="s3://data"
    )
    s3.put_object(Bucket="control", Key="cluster.json", Body=manifest.to_json())
    first = launch(ec2, "c6i.large", "us-east-1a", spot=True)
    launch(ec2, "m6i.large", "us-east-1b", spot=True)
    base = launch(ec2, "m6i.large", "us-east-1a", spot=False)
    time.sleep(1)
    market.do("price", pool="c6i.large/us-east-1a", factor=1.5)
    time.sleep(1.5)
    market.do("interrupt", instance=first)
    ec2.terminate_instances(InstanceIds=[base])
    wait_for_ends(market, 2)
    for client in (s3, ec2, iam):
        client.close()
    world.url = "s3://control"
    report = world.run("--json", "report", "--settle", env=environment(market)).json
    assert report["notes"] == []
    assert report["time_scale"] == SCALE
    assert {i["instance_id"]: i["interrupted"] for i in report["instances"]}[first]
    done = subprocess.run(
        [sys.executable, ROOT / "tools/audit_bill.py", tmp_path / "local" / "market.jsonl",
         "--until", report["as_of"], "--json"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    audit = json.loads(done.stdout)
    assert len(audit["instances"]) == 3
    assert report["cost_usd"] == audit["total_usd"] > 0


def test_a_cloud_that_does_not_answer_is_a_note_and_not_a_failure(world):
    manifest = world.store.manifest().model_copy(update={"cloud": "aws"})
    world.store.write_manifest(manifest)
    env = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    (note,) = world.run("--json", "report", "--settle", env=env).json["notes"]
    assert "could not be asked" in note


def test_down_writes_what_ended_before_the_destroy_and_in_it(ground, market, monkeypatch):  # noqa: F811 - the fixture
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    store = ground.world.store
    store.write_manifest(store.manifest().model_copy(update={"cloud": "aws"}))
    ec2 = boto3.client("ec2", region_name="us-east-1")
    earlier, standing = (launch(ec2, "m6i.large", "us-east-1a", spot=False) for _ in range(2))
    ec2.terminate_instances(InstanceIds=[earlier])
    wait_for_ends(market, 1)
    ground.place.resources = [BUCKET]
    ground.pulumi(code=1)
    assert ground.run("--yes").code == 1
    assert set(store.launches.scan()) == {earlier, standing}
    assert set(store.ends.scan()) == {earlier}
    ground.pulumi()
    script = ground.folder / "pulumi"
    ends_it = f"__import__('boto3').client('ec2').terminate_instances(InstanceIds=['{standing}'])"
    log_line = 'if sys.argv[1] == "stack":'
    script.write_text(script.read_text().replace(log_line, f"if sys.argv[1] == 'destroy': {ends_it}\n{log_line}"))
    assert ground.run("--yes").code == 0
    ec2.close()
    assert set(store.ends.scan()) == {earlier, standing}
