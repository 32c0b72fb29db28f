"""`everspot cost commitments`: advice from the ledger, and the reasons for advising nothing."""

import pytest

DAY = 86400


@pytest.fixture
def steady(world):
    """An instance on-demand for forty days, at $0.096 an hour, a scheduler beside it, and one on Spot for a day."""
    for iid in ("i-base", "i-brain", "i-spot1"):
        world.launch(iid, 0)
    world.end("i-spot1", DAY)
    world.to(40 * DAY)
    return world


def run_commitments(world, *arguments):
    frozen = {"EVERSPOT_CLOCK": f"1e-12@{world.clock.now().timestamp()}"}
    return world.run("commitments", *arguments, env=frozen)


def test_a_given_discount_gives_an_advice_from_the_floor(steady):
    answer = run_commitments(
        steady, "--months", "1", "--discount", "compute-1y=28", "--discount", "reserved-3y=60%", "--json"
    ).json
    assert (answer["hours"], answer["unpriced_hours"]) == (720, 0)
    rows = {(row["plan"], row["scope"]): row for row in answer["plans"]}
    compute = rows["compute-1y", "all of EC2"]
    assert compute["floor_usd_per_hour"] == pytest.approx(0.096 + 0.0208)
    assert compute["advice"]["saved_usd"] == pytest.approx(0.28 * 0.1168 * 720, abs=1e-5)
    assert compute["discount_from"] == "given"
    reserved = rows["reserved-3y", "m6i.large in us-east-1"]["advice"]
    assert (reserved["instances"], reserved["sureness"]) == (1, "fair")
    assert reserved["owed_usd"] == pytest.approx(0.4 * 0.096 * 3 * 8760, abs=0.01)
    unknown = rows["instance-1y", "m6i in us-east-1"]
    assert (unknown["advice"], unknown["discount"], unknown["discount_from"]) == (None, None, "unknown")
    assert "--discount instance-1y=PERCENT" in unknown["why_not"]
    assert not any("c6i" in scope for _, scope in rows), "Spot is covered by none"


def test_for_people_it_names_discounts_sources_and_what_spot_saves_already(steady):
    out = " ".join(run_commitments(steady, "--months", "2", "--discount", "compute-1y=28").out.split())
    assert "959 full hours, 2026-03-01 to 2026-04-10 12:00 UTC" in out
    assert "compute-1y: 28.0 % off the list price (as given)" in out
    assert "the cloud names 72.0 % as the most" in out
    assert "Commitments do not cover Spot." in out
    assert "of it was on Spot, which cost 52.9 % less than list" in out


def test_a_young_cluster_and_an_empty_one_get_no_advice(world):
    assert "Nothing ran on-demand in these hours" in run_commitments(world).out
    world.launch("i-base", 0)
    world.to(3 * DAY)
    rows = run_commitments(world, "--discount", "compute-1y=28", "--json").json["plans"]
    assert "Nothing is advised: 3.0 days are known, and 14 is the least to judge by." in run_commitments(world).out
    assert {row["why_not"] for row in rows} == {"3.0 days are known, and 14 is the least to judge by"}


def test_all_wrong_discounts_are_refused_at_once(world):
    answer = run_commitments(
        world, "--discount", "compute=3", "--discount", "compute-1y=0", "--discount", "reserved-1y=much"
    )
    assert answer.code == 2
    assert "'compute' is not one of compute-1y, compute-3y" in answer.err
    assert answer.err.count("a discount is a percentage between 0 and 100") == 2
