"""`everspot fleet`: pools from the documents alone, and from the cloud on request."""

from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.capacity.launching import LaunchIntent, LaunchPool
from everspot_core.cluster.manifest import Elastic, Manifest
from everspot_core.costs.baselines import over_norm
from everspot_core.costs.ledger import EndRecord, LaunchRecord, PricePoint
from everspot_core.jobs.records import Market
from everspot_store import ElasticUse, FleetState, PoolState

POOL = {"instance_type": "c6i.large", "market": Market.SPOT}
T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def fleet(past):
    """The small cluster with a past, as a scheduler has noted its pools; a launch is under way."""
    now = past.clock.now()
    past.store.notes.fleet.write(
        FleetState(
            scheduler_id="s-1",
            updated_at=now,
            pools=[
                PoolState(**POOL, zone="us-east-1b", usd_per_hour=0.051, placement_score=8, noticed_at=now),
                PoolState(**POOL, zone="us-east-1f", usd_per_hour=0.01, refused_at=[T0, now - timedelta(minutes=4)]),
            ],
            elastic=ElasticUse(instances=3, max_instances=8, usd_per_hour=0.153, max_usd_per_hour=2),
        )
    )
    pools = (LaunchPool(**POOL, zone="us-east-1b", place="subnet-1"),)
    intent = LaunchIntent(
        seq=7, token="0" * 32, jobs=("a", "b"), pools=pools, ordered=True, whole=False, template="lt-1",
        template_version="1", usd_per_hour=0.1, made_at=now, scheduler_id="s-1",
    )  # fmt: skip
    past.store.launching.create(intent.name, intent)
    elastic = Elastic(types=["c6i.large"], markets=[Market.SPOT], max_instances=8, template="lt-1",
                      template_version="1", places={"us-east-1b": "subnet-1"})  # fmt: skip
    past.store.write_manifest(past.store.manifest().model_copy(update={"elastic": elastic}))
    return past


def rows_by_pool(answer: dict) -> dict[tuple[str, str, str], dict]:
    return {(row["instance_type"], row["zone"], row["market"]): row for row in answer["pools"]}


def test_each_pool_has_its_price_score_history_and_refusals(fleet):
    answer = fleet.run("--json", "fleet").json
    rows = rows_by_pool(answer)
    interrupted_pool = rows["c6i.large", "us-east-1b", "spot"]
    assert (interrupted_pool["usd_per_hour"], interrupted_pool["placement_score"]) == (0.051, 8)
    assert (interrupted_pool["launched"], interrupted_pool["interrupted"], interrupted_pool["refusals"]) == (1, 1, 0)
    assert interrupted_pool["lifetimes_hours"] == [pytest.approx(4120 / 3600)]  # i-spot1, by the ledger
    assert interrupted_pool["hours_per_interruption"] == pytest.approx(4120 / 3600)
    ended_by_us = rows["m7i.large", "us-east-1c", "spot"]
    assert (ended_by_us["launched"], ended_by_us["interrupted"]) == (1, 0)
    assert ended_by_us["hours_per_interruption"] is None
    refused = rows["c6i.large", "us-east-1f", "spot"]  # no instance was ever launched there
    assert (refused["refusals"], refused["launched"]) == (2, 0)
    assert ("t3.small", "us-east-1a", "on-demand") not in rows  # the scheduler's own
    assert answer["elastic"] == {
        "instances": 3, "max_instances": 8, "usd_per_hour": 0.153, "max_usd_per_hour": 2,
    }  # fmt: skip
    assert answer["idle_limit_seconds"] == 300
    (launch,) = answer["launching"]
    assert (launch["seq"], launch["count"], launch["jobs"]) == (7, 2, ["a", "b"])


def test_what_runs_idles_and_comes_is_counted_by_pool(fleet):
    fleet.submit("more", 9100)
    fleet.to(9200)
    fleet.launch("i-spot3", 9150)  # the ledger has its end, so it is not counted
    fleet.beat("i-base", job="more")
    rows = rows_by_pool(fleet.run("--json", "fleet").json)
    base = rows["m6i.large", "us-east-1a", "on-demand"]
    assert (base["instances"], base["busy"] + base["idle"] + base["coming"] <= 1) == (1, True)
    assert base["jobs"] == ["more"]
    assert rows["c6i.large", "us-east-1a", "spot"]["instances"] == 0


@pytest.mark.parametrize("width", ["80", "200"])
def test_people_read_it_on_any_terminal(fleet, width):
    text = fleet.run("fleet", env={"COLUMNS": width}).out
    assert "…" not in text
    assert "Launched: 3 of 8 instances at the most, $0.15 of $2.00 an hour. One without work is let go after 5m." in (
        text.replace("\n", " ")
    )
    assert "2 instances on spot for 2 jobs." in text.replace("\n", " ")
    assert max(map(len, text.splitlines()[:-3])) <= int(width)


def test_pools_in_which_nothing_has_happened_are_counted_and_only_the_cheapest_of_them_are_listed(fleet):
    state = fleet.store.notes.fleet.read()
    quiet = [PoolState(**{**POOL, "instance_type": f"q{n}.large"}, zone="us-east-1a", usd_per_hour=1 - n / 100)
             for n in range(20)]  # fmt: skip
    fleet.store.notes.fleet.write(state.model_copy(update={"pools": [*state.pools, *quiet]}))
    whole = fleet.run("--json", "fleet").json["pools"]

    def listed(*more):
        text = fleet.run("fleet", *more).out
        return [line.split()[0] for line in text.splitlines() if ".large " in line and line[0] in "qcm"], text

    few, text = listed()
    assert [name for name in few if name[0] == "q"] == [f"q{n}.large" for n in range(19, 14, -1)]
    assert len(few) == len(whole) - 15
    assert {"c6i.large", "m6i.large", "m7i.large"} <= set(few)
    assert "15 more pools in which nothing has happened yet: everspot fleet --all" in text
    all_names, text = listed("--all")
    assert (len(all_names), "more pool" in text) == (len(whole), False)


def test_a_pool_over_its_norm_is_marked_and_named_with_what_is_worse(fleet, monkeypatch):
    """Two were taken within minutes, and the price has doubled since yesterday: what the alarm and the metric count."""
    now = fleet.clock.now()
    monkeypatch.setenv("EVERSPOT_CLOCK", f"1e-12@{now.timestamp()}")  # and so it stays
    for name in ("i-x1", "i-x2"):
        began = now - timedelta(minutes=30)
        fleet.store.launches.create(name, LaunchRecord(instance_id=name, **POOL, zone="us-east-1b", launched_at=began))
        fleet.store.ends.create(name, EndRecord(instance_id=name, ended_at=now, interrupted=True))
    for hours, usd in ((40, 0.02), (0.1, 0.5)):
        at = now - timedelta(hours=hours)
        fleet.store.add_price(PricePoint(**POOL, zone="us-east-1b", at=at, usd_per_hour=usd, source="t"))
    rows = rows_by_pool(fleet.run("--json", "fleet", "--json").json)
    assert rows["c6i.large", "us-east-1b", "spot"]["over_norm"] == ["interruptions", "price"]
    assert [row["over_norm"] for pool, row in rows.items() if pool[1] != "us-east-1b"] == [[]] * (len(rows) - 1)
    text = fleet.run("fleet").out
    assert (
        "Over its norm: c6i.large in us-east-1b, spot, takes far more instances than it uses to and costs far" in text
    )
    (line,) = (line for line in text.splitlines() if line.startswith("c6i.large") and "us-east-1b" in line)
    assert ("0.0510 !" in line, "3 !" in line) == (True, True)
    launches = {name: doc.value for name, doc in fleet.store.launches.scan().items()}
    ends = {name: doc.value for name, doc in fleet.store.ends.scan().items()}
    over = over_norm(launches, ends, fleet.store.prices(), now)  # the scheduler counts by all prices that it has
    assert {tuple(pool): list(norms) for pool, norms in over.items()} == {
        pool: row["over_norm"] for pool, row in rows.items() if row["over_norm"]
    }


def test_a_cluster_of_which_nothing_is_known_says_so(world):
    answer = world.run("fleet")
    assert answer.code == 0
    assert "No pool is known yet" in answer.out
    assert world.run("--json", "fleet").json["pools"] == []


def test_a_note_that_cannot_be_read_hides_nothing_else(fleet):
    (fleet.root / "control" / "pools.json").write_text("{")
    answer = fleet.run("--json", "fleet").json
    assert "cannot be read" in answer["troubles"][0]
    assert rows_by_pool(answer)["c6i.large", "us-east-1b", "spot"]["launched"] == 1


def test_the_documents_alone_are_read_unless_the_cloud_is_asked_for(fleet, monkeypatch):
    declared = {**fleet.store.manifest().model_dump(), "cloud": "aws"}
    fleet.store.write_manifest(Manifest.model_validate(declared))
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1", "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert fleet.run("--json", "fleet").json["troubles"] == []
    (trouble, *_) = fleet.run("--json", "fleet", "--live").json["troubles"]
    assert "spot prices could not be read from aws: Could not connect" in trouble
