"""Spot prices, capacity ratings and quotas of the local Google Cloud, as schedulers and people read them."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_clouds.base import Verdict
from everspot_clouds.gcp.cloud import GcpCloud
from everspot_clouds.gcp.prices import SOURCE
from everspot_clouds.registry import provider
from everspot_core.capacity.catalogue import builtin
from everspot_core.capacity.launching import LaunchTrouble
from everspot_core.capacity.market import Market
from everspot_core.capacity.price_table import PriceTable, TypePrice
from everspot_core.cluster.manifest import Standing
from everspot_local.cloud import LocalCloud
from everspot_store import Store
from google_site import REGION, A, B, C, GoogleSite

FOUR, EIGHT, ATTACHED = "g2-standard-4", "g2-standard-8", "n1-standard-8+t4"


@pytest.fixture
def site(google: LocalCloud) -> GoogleSite:
    built = GoogleSite(google)
    built.build()
    return built


@pytest.fixture
def cloud(site: GoogleSite) -> Iterator[GcpCloud]:
    opened = GcpCloud.open(site.manifest(), site.clock)
    yield opened
    opened.close()


def test_prices_are_the_regions_and_of_attached_gpus_the_catalogues(site: GoogleSite, cloud: GcpCloud) -> None:
    points = cloud.spot_prices([(FOUR, A), (FOUR, B), (ATTACHED, A)], site.clock.now())
    assert {(p.instance_type, p.zone) for p in points} == {(FOUR, A), (FOUR, B), (ATTACHED, A)}
    by_pool = {(p.instance_type, p.zone): p for p in points}
    assert by_pool[FOUR, A].source == SOURCE
    assert by_pool[FOUR, A].usd_per_hour == by_pool[FOUR, B].usd_per_hour == pytest.approx(0.3153)
    assert "skypilot" in by_pool[ATTACHED, A].source
    assert all(p.at <= site.clock.now() and p.market is Market.SPOT for p in points)


def test_newer_price_tables_of_the_cluster_price_types_with_attached_gpus(site: GoogleSite, tmp_path: Path) -> None:
    now = site.clock.now()
    old, new = (
        PriceTable(
            cloud="gcp", region=REGION, as_of=now - age, on_demand_source="", spot_source=source,
            prices=[TypePrice(instance_type=ATTACHED, spot_usd_per_hour={A: usd, B: usd})],
        )
        for age, usd, source in ((timedelta(days=9), 0.5, "settings"), (timedelta(days=2), 0.7, "refresh"))
    )  # fmt: skip
    for name in ("control", "data"):
        (tmp_path / name).mkdir()
    store = Store.open(f"file://{tmp_path}/control", f"file://{tmp_path}/data", clock=site.clock)
    store.write_manifest(site.manifest(list_prices=old))
    store.write_price_table(new)
    scheduling = provider("gcp").scheduling(store.manifest(), store)
    reading = provider("gcp").reading(store.manifest(), site.clock, [old, new])
    for opened in (scheduling, reading):
        assert opened is not None
        (present,) = opened.spot_prices([(ATTACHED, A)], now)
        assert (present.at, present.usd_per_hour, present.source) == (new.as_of, 0.7, "refresh")
        month = opened.spot_prices([(ATTACHED, A)], now - timedelta(days=30))
        assert [point.usd_per_hour for point in month] == [0.34234, 0.5, 0.7]
        (other,) = opened.spot_prices([(FOUR, A)], now)
        assert other.source == SOURCE
        opened.close()


def test_ratings_are_of_zones_and_kept_for_a_while(site: GoogleSite, cloud: GcpCloud) -> None:
    for kind in (FOUR, EIGHT):
        site.cloud.do("drought", pool=f"{kind}/{C}")
    scores = {score.zone: score for score in cloud.placement_scores([FOUR, EIGHT], 3)}
    assert set(scores) == {A, B, C}
    assert all((s.types, s.count, s.region) == ((FOUR, EIGHT), 4, REGION) for s in scores.values())
    assert scores[C].score < scores[A].score
    calls = len(site.cloud.calls.read())
    assert {score.zone: score for score in cloud.placement_scores([EIGHT, FOUR], 3)} == scores
    assert len(site.cloud.calls.read()) == calls
    (region,) = cloud.placement_scores([FOUR], 1, [REGION])
    assert (region.region, region.zone) == (REGION, "")


def test_a_price_table_has_both_prices_in_every_zone_also_of_attached_gpus(site: GoogleSite) -> None:
    pages: list[int] = []
    now = site.clock.now() + timedelta(seconds=1)
    table = provider("gcp").price_table(REGION, [FOUR, ATTACHED, "a9-gpu-1g"], now, lambda: pages.append(1))
    rows = {row.instance_type: row for row in table.prices}
    for name in (FOUR, ATTACHED):
        listed, spot = builtin().on_demand(name, REGION), builtin().spot_range(name, REGION)
        assert listed is not None and spot is not None
        assert rows[name].on_demand_usd_per_hour == pytest.approx(listed.usd_per_hour, rel=1e-3)
        assert rows[name].spot_usd_per_hour == dict.fromkeys([A, B, C], pytest.approx(spot[0].usd_per_hour, rel=1e-3))
    assert rows.keys() == {FOUR, ATTACHED} and len(pages) >= 3
    assert table.unpriced == {"a9-gpu-1g": f"Compute Engine does not offer it in {REGION}"}
    assert (table.spot_source, table.on_demand_source) == (SOURCE, "cloudbilling:services.skus")
    described = {kind.name: kind for kind in table.types}
    assert described[FOUR].model_dump(exclude={"nvswitch", "network_gbps"}) == builtin().types[FOUR].model_dump(
        exclude={"nvswitch", "network_gbps"}
    )
    assert (described[ATTACHED].gpus, described[ATTACHED].gpu) == (1, "T4")


def test_a_quota_that_is_full_is_named_and_doctor_says_so_before(site: GoogleSite, cloud: GcpCloud) -> None:
    site.cloud.do("quota", code="PREEMPTIBLE_NVIDIA_L4_GPUS", value=1)
    manifest = site.manifest().model_copy(update={"standing": Standing(spot_units=2, weights={FOUR: 1})})
    checks = provider("gcp").checks(REGION, manifest, builtin(), site.clock)
    everywhere, short = [check for check in checks if check.name == "quota"]
    assert everywhere.detail.startswith("GPUS_ALL_REGIONS: ") and everywhere.verdict is Verdict.OK
    assert (short.verdict, short.detail) == (
        Verdict.FAIL, "PREEMPTIBLE_NVIDIA_L4_GPUS: 1; the cluster takes 2 at most: standing 2",
    )  # fmt: skip
    assert "metric=PREEMPTIBLE_NVIDIA_L4_GPUS" in short.fix
    answer = cloud.launch(site.intent((FOUR, A), jobs=2, whole=True))
    assert answer.instances == ()
    assert {(e.kind, e.instance_type) for e in answer.errors} == {(LaunchTrouble.QUOTA, FOUR)}
    assert {e.code for e in answer.errors} == {"QUOTA_EXCEEDED (PREEMPTIBLE_NVIDIA_L4_GPUS)"}
    assert cloud.quota_name(FOUR, Market.SPOT) == "PREEMPTIBLE_NVIDIA_L4_GPUS"
