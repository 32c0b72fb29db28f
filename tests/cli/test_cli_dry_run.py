"""What a dry run prints about pools: prices in force, placement scores, and how often spot was preempted here."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_clouds.aws.placement import PlacementScores
from everspot_clouds.base import PlacementScore
from everspot_core.capacity.catalogue import builtin
from everspot_core.cluster.manifest import FleetOffer, Manifest
from everspot_core.costs.ledger import EndRecord, LaunchRecord
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import JobRecord, JobState, Market
from everspot_local.cloud import LocalCloud
from everspot_local.options import Options
from everspot_store import StoreDenied, SystemClock
from everspot_store.outputs import Outputs

REGION, ZONES = "us-east-1", ["us-east-1a", "us-east-1b"]
TYPES = ["c6i.large", "m6i.large", "m7i.large"]
JOB = "name: a\nrecipe: image-classification\nresources: {vcpus: 2}\nexpected_duration: 2h\n"


@pytest.fixture
def market(tmp_path: Path) -> Iterator[LocalCloud]:
    with LocalCloud(Options(state_dir=tmp_path / "local", boot_command=None, region=REGION)) as market:
        yield market


@pytest.fixture
def scored(monkeypatch):
    """The requests for scores. Zone b has nine points of ten."""
    requests = []

    def scores(self, types, count, regions=()):
        requests.append((tuple(types), count, tuple(regions)))
        now = self._clock.now()
        if regions:
            zone_scores = [("eu-west-1", "", 8), (REGION, "", 2)]
        else:
            zone_scores = [(REGION, "us-east-1a", 3), (REGION, "us-east-1b", 9)]
        return [
            PlacementScore(types=tuple(types), region=region, zone=zone, count=count, score=score, at=now)
            for region, zone, score in zone_scores
        ]

    monkeypatch.setattr(PlacementScores, "scores", scores)
    return requests


@pytest.fixture
def cluster(market, world, monkeypatch):
    for name, value in {
        "AWS_ENDPOINT_URL": market.endpoint,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }.items():
        monkeypatch.setenv(name, value)
    fleet = FleetOffer(types=TYPES, zones=ZONES, markets=[Market.SPOT])
    declared = {**world.store.manifest().model_dump(), "cloud": "aws", "region": REGION, "fleet": fleet}
    world.store.write_manifest(Manifest.model_validate(declared))
    return world


def lived(world, iid: str, kind: str, hours: float, interrupted: bool | None) -> None:
    """Record a spot instance that was launched `hours` ago, and has ended unless `interrupted` is None."""
    now = SystemClock().now()
    world.store.launches.create(
        iid,
        LaunchRecord(
            instance_id=iid, instance_type=kind, zone=ZONES[0], market=Market.SPOT,
            launched_at=now - timedelta(hours=hours),
        ),
    )  # fmt: skip
    if interrupted is not None:
        world.store.ends.create(iid, EndRecord(instance_id=iid, ended_at=now, interrupted=interrupted))


def test_spot_costs_what_the_cloud_says_now_zone_by_zone(cluster, market, spec_file):
    pool = market.market.pools.get("m7i.large", ZONES[1])
    with market.market.lock:
        market.market.pools.set_price(pool, 0.0123, market.market.clock.now())
    candidates = {
        c["name"]: c for c in cluster.run("--json", "submit", str(spec_file(JOB)), "--dry-run").json["candidates"]
    }
    assert set(candidates) == set(TYPES)
    candidate = candidates["m7i.large"]
    prices = {row["zone"]: row["spot_usd_per_hour"] for row in candidate["pools"]}
    assert prices == {zone: market.market.pools.get("m7i.large", zone).spot_usd for zone in ZONES}
    assert candidate["spot_usd_per_hour"] == [min(prices.values()), max(prices.values())]
    assert min(prices.values()) == 0.0123
    assert candidate["expected_spot_usd"] == pytest.approx([0.0246, 2 * max(prices.values())])
    assert (candidate["spot_price_source"], candidate["spot_price_is_estimate"]) == (
        "ec2:DescribeSpotPriceHistory",
        False,
    )
    assert candidate["spot_price_as_of"] == f"{SystemClock().now():%Y-%m-%d}"
    text = cluster.run("submit", str(spec_file(JOB)), "--dry-run").out
    assert "0.0123 to " in text
    assert "~" not in text.split("Spot prices without")[0]
    assert "are those in force at" in text


def test_scores_follow_what_the_pools_would_give_now(cluster, market, spec_file):
    with market.market.lock:
        for kind in TYPES:
            for zone, depth in zip(ZONES, (100, 0), strict=True):
                market.market.pools.get(kind, zone).depth[Market.SPOT] = depth
    candidates = {
        c["name"]: c for c in cluster.run("--json", "submit", str(spec_file(JOB)), "--dry-run").json["candidates"]
    }
    for kind in TYPES:
        assert candidates[kind]["placement_scores"] == [1, 10]
        assert {row["zone"]: row["placement_score"] for row in candidates[kind]["pools"]} == {
            "us-east-1a": 10, "us-east-1b": 1,
        }  # fmt: skip


def test_scores_stand_beside_what_was_taken_here(cluster, scored, spec_file):
    for number, (hours, interrupted) in enumerate(((6.0, True), (3.0, False), (1.0, None), (2.0, True))):
        lived(cluster, f"i-{number}", "c6i.large", hours, interrupted)
    answer = cluster.run("--json", "submit", str(spec_file(JOB)), "--dry-run").json
    candidate = {c["name"]: c for c in answer["candidates"]}["c6i.large"]
    assert scored == [(tuple(TYPES), 1, ())]
    assert candidate["placement_scores"] == [3, 9]
    assert [(p["zone"], p["placement_score"]) for p in candidate["pools"]] == list(zip(ZONES, (3, 9), strict=True))
    assert (candidate["spot_launches"], candidate["spot_interrupted"]) == (4, 2)
    assert candidate["spot_hours_per_interruption"] == pytest.approx(6.0, abs=0.01)
    wide = cluster.run("submit", str(spec_file(JOB)), "--dry-run").out
    row = next(line for line in wide.splitlines() if "c6i.large" in line)
    assert row.split()[-2:] == ["3-9", "2/4"]
    narrow = cluster.run("submit", str(spec_file(JOB)), "--dry-run", env={"COLUMNS": "80"}).out
    assert "…" not in narrow
    lines = [line.strip() for line in narrow.splitlines()]
    at = next(n for n, line in enumerate(lines) if line.startswith("c6i.large"))
    assert lines[at + 1 : at + 3] == ["score 3-9", "taken 2/4"]
    for text in (wide, narrow):
        assert "one for each 6h00m that an instance ran" in text.replace("\n", " ")


def test_several_regions_are_scored_as_wholes(cluster, scored, spec_file):
    regions = ("--region", "eu-west-1", "--region", REGION)
    answer = cluster.run("--json", "submit", str(spec_file(JOB)), "--dry-run", *regions).json
    candidates = {(c["name"], c["region"]): c for c in answer["candidates"]}
    assert sorted(scored) == [(tuple(TYPES), 1, ()), (tuple(TYPES), 1, ("eu-west-1", REGION))]
    assert candidates["c6i.large", "eu-west-1"]["placement_scores"] == [8, 8]
    assert candidates["c6i.large", REGION]["placement_scores"] == [3, 9]
    assert candidates["c6i.large", "eu-west-1"]["pools"] == []


def test_live_fleet_lists_prices_and_scores_of_unused_pools(cluster, market, scored):
    assert cluster.run("--json", "fleet").json["pools"] == []
    rows = cluster.run("--json", "fleet", "--live").json["pools"]
    assert {(row["instance_type"], row["zone"], row["market"]) for row in rows} == {
        (kind, zone, "spot") for kind in TYPES for zone in ZONES
    }
    for row in rows:
        pool = market.market.pools.get(row["instance_type"], row["zone"])
        assert row["usd_per_hour"] == pool.spot_usd
        assert row["placement_score"] == {"us-east-1a": 3, "us-east-1b": 9}[row["zone"]]


def test_what_no_cloud_says_is_marked_as_an_estimate(world, spec_file):
    text = world.run("submit", str(spec_file(JOB)), "--dry-run").out
    low, high = builtin().spot_range("c6i.large", REGION)
    assert f"~{low.usd_per_hour:.4f} to {high.usd_per_hour:.4f}" in text
    assert "~ an estimate: the catalogue's figure of an earlier day" in text
    assert "SCORE" not in text
    candidate = world.run("--json", "submit", str(spec_file(JOB)), "--dry-run").json["candidates"][0]
    assert (candidate["spot_price_is_estimate"], candidate["spot_price_as_of"]) == (True, "2026-01-01")


def test_a_cloud_that_cannot_be_asked_hides_no_candidate(cluster, spec_file, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    answer = cluster.run("submit", str(spec_file(JOB)), "--dry-run")
    assert answer.code == 0, answer.err
    assert "spot prices could not be read from aws: Could not connect to the endpoint" in answer.out
    assert "~0.0" in answer.out


def test_a_dry_run_counts_the_egress_of_the_data_to_another_region(cluster, scored, spec_file, tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "all.bin").write_bytes(b"x" * 1_000_000)
    assert cluster.run("data", "put", str(tmp_path / "images"), "images").code == 0
    job = str(spec_file(JOB + "datasets: [images]\n"))
    regions = ("--region", "eu-west-1", "--region", "us-east1", "--region", REGION)
    answer = cluster.run("--json", "submit", job, "--dry-run", *regions).json
    assert answer["data"] == {"bytes": 1_000_000, "region": REGION, "output_bytes": 0, "egress_usd": 0.0}
    egress = {c["region"]: c["egress_usd"] for c in answer["candidates"]}
    assert egress[REGION] == 0 and egress["eu-west-1"] == pytest.approx(0.02 * 0.001)
    text = " ".join(cluster.run("submit", job, "--dry-run", *regions).out.split())
    assert f"Data: 1 MB in the cluster's own bucket in {REGION}, which costs no egress." in text
    assert "Sending it to eu-west-1 costs less than $0.01 once, beside the prices above." in text
    assert cluster.run("--json", "submit", str(spec_file(JOB)), "--dry-run").json["data"]["bytes"] == 0


def test_a_stage_counts_the_outputs_that_it_gets(cluster, spec_file):
    earlier = JobSubmission(job_id="prepare-00000001", spec=JobSpec(name="prepare", recipe="image-classification"),
                            submitted_at=cluster.clock.now())  # fmt: skip
    cluster.store.submit(earlier)
    ended = JobRecord(job_id=earlier.job_id, state=JobState.SUCCEEDED, changed_at=cluster.clock.now())
    cluster.store.records.create(earlier.job_id, ended)
    cluster.store.outputs(earlier.job_id).put(1, "table.csv", b"x" * 5000)
    answer = cluster.run("--json", "submit", str(spec_file(JOB + "after: [prepare]\n")), "--dry-run").json
    assert (answer["data"]["output_bytes"], answer["data"]["bytes"]) == (5000, 5000)


def test_who_may_not_list_outputs_still_gets_a_dry_run(cluster, spec_file, monkeypatch):
    def refuse(*_):
        raise StoreDenied("jobs/ of the data bucket")

    spec = JobSpec(name="prepare", recipe="image-classification")
    cluster.store.submit(JobSubmission(job_id="prepare-00000001", spec=spec, submitted_at=cluster.clock.now()))
    monkeypatch.setattr(Outputs, "list", refuse)
    answer = cluster.run("--json", "submit", str(spec_file(JOB + "after: [prepare]\n")), "--dry-run")
    assert answer.code == 0, answer.err
    assert (answer.json["data"]["output_bytes"], answer.json["data"]["bytes"]) == (None, 0)
