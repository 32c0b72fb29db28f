"""Reading commands change no object of the cluster's store."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from everspot_cli.registry import COMMANDS, GROUPS
from everspot_core.experiments.sweep import SweepRecord, SweepSpec
from everspot_core.jobs.records import Role
from everspot_core.jobs.utilization import Utilization
from everspot_local.cloud import LocalCloud
from everspot_local.options import Options
from sweep_helpers import SWEEP
from ui_helpers import served

from tests.cli.conftest import T0, World

MARCH = ("--month", "2026-03")
READING: dict[str, tuple[tuple[str, ...], ...]] = {
    "jobs": (("jobs",), ("jobs", "--all")),
    "job": (("job", "moved"),),
    "top": (("top", "moved"),),
    "tensorboard": (("tensorboard", "moved", "--json"),),
    "logs": (("logs", "moved"),),
    "data": (("data", "list"),),
    "gc": (("gc",),),
    "instances": (("instances", "--all"),),
    "fleet": (("fleet",), ("fleet", "--live")),
    "gpus": (("gpus",), ("gpus", "--model", "T4")),
    "federation": (("federation",),),
    "doctor": (("doctor",),),
    "changes": (("changes",),),
    "cost report": (
        ("cost", "report"),
        ("cost", "report", "moved"),
        ("cost", "report", "--html", "report.html"),
        ("cost", "report", "--as-of", "2026-03-01T13:00:00Z"),
    ),
    "cost compare": (("cost", "compare", "moved"), ("cost", "compare", "--a", "moved", "--b", "steady")),
    "cost chargeback": (("cost", "chargeback", *MARCH),),
    "cost export": (("cost", "export", "focus", *MARCH, "--out", "bill.csv"),),
    "cost reconcile": (("cost", "reconcile", "bill.csv", *MARCH),),
    "cost audit": (("cost", "audit", *MARCH), ("cost", "audit", "moved", "--against", "steady")),
    "cost anomalies": (("cost", "anomalies"),),
    "cost commitments": (("cost", "commitments"),),
    "cost estimate": (("cost", "estimate", "--settings", "Pulumi.prod.yaml", "--ledger"),),
    "cost prices": (("cost", "prices"), ("cost", "prices", "--region", "us-east-1")),
    "cost budget": (("cost", "budget"),),
    "submit": (("submit", "job.yaml", "--dry-run"),),
    "sweep": (("sweep", "sweep.yaml", "--show"), ("sweep", "sweep.yaml", "--dry-run")),
    "plan": (("plan", "job.yaml", "--budget", "50", "--metric", "test_accuracy"),),
    "ui": (),  # has a test of its own below
}
"""The commands that show something, each as it is typed."""

NOT_READING = {
    "ab", "rehearse", "retry", "profile", "cancel", "exec", "forward", "pull", "init", "preflight", "review",
    "simulate", "cluster use", "cluster list", "cluster drain", "cluster roll", "cluster down", "cluster interrupt",
}  # fmt: skip
"""Commands that act, or that read no store."""

SETTINGS = """
config:
  aws:region: us-east-1
  everspot:cluster:
    cloud: aws
    imageParameter: /everspot/image/prod
    zones: [us-east-1a]
    capacity: {standing: {target: 1}, instanceTypes: [m6i.large]}
"""

LINES = [line for lines in READING.values() for line in lines]


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """A cloud with an instance of the cluster that no ledger has, and one whose end no ledger has."""
    folder = tmp_path_factory.mktemp("local")
    with LocalCloud(Options(state_dir=folder, boot_command=None)) as market:
        ec2 = boto3.client("ec2", **access(market))
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "everspot:cluster", "Value": "test"}]}]
        for _ in range(2):
            launched = ec2.run_instances(
                ImageId="ami-12c6146b", InstanceType="m6i.large", MinCount=1, MaxCount=1, TagSpecifications=tags
            )
        ec2.terminate_instances(InstanceIds=[launched["Instances"][0]["InstanceId"]])
        ec2.close()
        yield market


def access(market: LocalCloud) -> dict[str, str]:
    return {
        "endpoint_url": market.endpoint,
        "region_name": "us-east-1",
        "aws_access_key_id": "testing",
        "aws_secret_access_key": "testing",
    }


@pytest.fixture
def cluster(past: World, market: LocalCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The cluster with its past, in a cloud that knows more than the ledger."""
    past.store.write_manifest(past.store.manifest().model_copy(update={"cloud": "aws"}))
    record = past.record("moved")
    assert record is not None
    use = Utilization(seconds=1800, vcpus=2, cpu_seconds=900)
    past.save(record.model_copy(update={"progress": record.progress.model_copy(update={"attempt_use": use})}))
    for name, value in access(market).items():
        monkeypatch.setenv("AWS_REGION" if name == "region_name" else name.upper(), value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", market.endpoint)
    monkeypatch.setenv("EVERSPOT_CLOCK", f"1e-12@{T0.timestamp() + 3 * 3600:.0f}")
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("name: train\nrecipe: image-classification\nexpected_duration: 1h\ndeadline: 9h\n")
    spec = SweepSpec.model_validate(SWEEP | {"job": "job.yaml"})
    Path("sweep.yaml").write_text(spec.model_dump_json(by_alias=True, exclude_none=True))
    past.store.studies.begin(SweepRecord(spec=spec, made_at=T0, made_by="ann"))
    Path("Pulumi.prod.yaml").write_text(SETTINGS)
    return past


def objects(world: World) -> list[Any]:
    """Every object of both buckets with its ETag, size and time, and its bytes."""
    buckets = (world.store.control, world.store.data)
    return [(entry, bucket.get(entry.key)) for bucket in buckets for entry in bucket.list()]


def test_every_command_is_in_one_of_the_two_tables() -> None:
    names = {name for name, entry in COMMANDS.items() if entry.module is not None}
    names |= {f"{group} {name}" for group, entries in GROUPS.items() for name in entries}
    assert names == READING.keys() | NOT_READING
    assert not READING.keys() & NOT_READING


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_reading_command_leaves_every_object_as_it_was(cluster: World, line: tuple[str, ...]) -> None:
    if line[:2] == ("cost", "reconcile"):
        assert cluster.run("cost", "export", "focus", *MARCH, "--out", "bill.csv").code == 0
    before = objects(cluster)
    answer = cluster.run(*line)
    assert answer.code == (line == ("doctor",)), answer.err  # which finds no scheduler
    assert objects(cluster) == before


def test_the_pages_of_the_web_ui_leave_every_object_as_it_was(cluster: World) -> None:
    before = objects(cluster)
    with served(cluster.url) as page:
        for path in ("/", "/jobs/moved", "/fleet", "/changes"):
            assert page.get(path).status == 200
        page.until("/spending", lambda text: "research" in text)
    assert objects(cluster) == before


def test_settling_writes_what_the_cloud_knows(cluster: World) -> None:
    before = set(cluster.store.launches.scan())
    answer = cluster.run("cost", "report", "--settle", "--json")
    assert answer.code == 0, answer.err
    launched = set(cluster.store.launches.scan()) - before
    assert len(launched) == 2
    assert len(launched & set(cluster.store.ends.scan())) == 1
    assert answer.json["notes"] == []


def test_a_report_says_that_nobody_settles(past: World) -> None:
    past.store.launches.delete("i-brain")
    (note,) = past.run("cost", "report", "--json").json["notes"]
    assert "1 instance without an end" in note and "`everspot cost report --settle`" in note
    past.end("i-base", 9200)
    assert past.run("cost", "report", "--json").json["notes"] == []


def test_a_report_beside_a_scheduler_says_nothing_of_settling(past: World) -> None:
    past.clock.advance(datetime.now(UTC) - past.clock.now())
    past.scheduler_beat()
    assert past.run("cost", "report", "--json").json["notes"] == []
    assert any(doc.value.role is Role.SCHEDULER for doc in past.store.launches.scan().values())
