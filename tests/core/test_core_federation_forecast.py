"""The forecast of a job in a cluster: cost, latest end and capacity, by the cluster's market."""

from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.federation.decision import MovableJob, MoveTerms, decide_move
from everspot_core.federation.forecast import MoveCost, forecast_job, may_move
from everspot_core.federation.market import ClusterMarket, Headroom, joined
from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.job import JobSpec, JobSubmission, Priority, Resources
from everspot_core.jobs.records import JobRecord, JobState, Market
from everspot_core.jobs.visit_records import Visit
from everspot_core.schedule import Behaviour, Cap, PoolKey
from hypothesis import given
from hypothesis import strategies as st
from view_helpers import cluster_view, instance_view, job_view, outlook_view, pool_view

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
TICK = timedelta(minutes=1)
KIND = InstanceType(name="gpu", vcpus=8, memory_gib=32, gpus=1, gpu="X", gpu_memory_gib=16)
SPOT, DEAR = PoolKey("gpu", "a", Market.SPOT), PoolKey("gpu", "a", Market.ON_DEMAND)
STEADY = Behaviour(up=True, since=NOW - 100 * HOUR, first=NOW - 100 * HOUR)
LOST = Behaviour(up=False, since=NOW - 3 * HOUR, first=NOW - 100 * HOUR, ups=(97.0,))


def market(*pools, cluster="there", **more):
    return ClusterMarket(**{"cluster": cluster, "pools": pools, "unions": {}, "tick": TICK, **more})


def spot(**more):
    defaults = {"instance_type": KIND, "zone": "a", "market": Market.SPOT, "usd_per_hour": 1.0, "behaviour": STEADY}
    return pool_view(**defaults | more)


def on_demand(**more):
    return spot(**{"market": Market.ON_DEMAND, "usd_per_hour": 3.0, "behaviour": Behaviour()} | more)


def dry_pool(pool):
    return pool_view(**{f: getattr(pool, f) for f in pool.__dataclass_fields__ if f != "key"} | NOTHING)


NOTHING = {"available": 0, "behaviour": LOST}


def job(*, hours=10.0, deadline=20.0, gpus=1, priority=Priority.NORMAL, nodes=1, **more):
    work = outlook_view(
        remaining=hours * HOUR, remaining_upper=1.2 * hours * HOUR, changeover=0.1 * HOUR, changeover_upper=0.25 * HOUR
    )
    submission = JobSubmission(
        job_id="j",
        spec=JobSpec(name="j", recipe="r", priority=priority, resources=Resources(gpus=gpus)),
        submitted_at=NOW,
        deadline_at=None if deadline is None else NOW + deadline * HOUR,
    )
    return job_view(**{"submission": submission, "outlook": work, "nodes": nodes, **more})


def test_on_demand_is_paid_by_the_hour_with_its_changeover_and_bounds_the_end():
    forecast = forecast_job(job(), market(on_demand()), NOW)
    assert forecast.feasible and forecast.usd == pytest.approx(3.0 * 10.1)
    assert forecast.done_by == NOW + 12.25 * HOUR + TICK
    assert forecast_job(job(nodes=4), market(on_demand()), NOW).usd == pytest.approx(4 * 3.0 * 10.1)


def test_steady_spot_costs_little_more_than_its_price_and_on_demand_bounds_the_end():
    forecast = forecast_job(job(), market(spot(), on_demand()), NOW)
    assert 10.0 < forecast.usd < 15.0
    assert forecast.done_by == NOW + 12.25 * HOUR + TICK
    assert forecast_job(job(), market(spot()), NOW).done_by is None


def test_a_long_outage_is_worked_through_on_on_demand_as_far_as_the_job_cannot_wait():
    here = market(dry_pool(spot()), on_demand())
    peer_market = market(spot(), on_demand())
    pressed, patient = (forecast_job(job(deadline=d), here, NOW).usd for d in (13.5, 80.0))
    assert forecast_job(job(deadline=80.0), peer_market, NOW).usd < patient < pressed <= 3.0 * 10.1 + 1e-9


def test_a_critical_job_and_one_at_its_last_safe_moment_are_priced_on_demand():
    both_markets = market(spot(), on_demand())
    assert forecast_job(job(priority=Priority.CRITICAL), both_markets, NOW).usd == pytest.approx(30.3)
    assert forecast_job(job(deadline=12.3), both_markets, NOW).usd == pytest.approx(30.3)


def test_the_way_is_paid_and_takes_its_time():
    way = MoveCost.for_bytes(100, 0.09, 200)
    assert (way.usd, way.expected) == (pytest.approx(9.0), timedelta(minutes=32))
    forecast = forecast_job(job(), market(on_demand()), NOW, move_cost=way)
    assert forecast.usd == pytest.approx(30.3 + 9.0) and forecast.move_usd == pytest.approx(9.0)
    assert forecast.done_by == NOW + 12.25 * HOUR + TICK + timedelta(minutes=70)
    assert (way + way).usd == pytest.approx(18.0)


def test_nobody_is_drawn_to_where_there_is_no_spot_now_either():
    waiting = market(dry_pool(spot()), on_demand())
    way = MoveCost.for_bytes(0, 0, 1)
    assert forecast_job(job(deadline=None), waiting, NOW).usd < 20
    assert forecast_job(job(deadline=None), waiting, NOW, move_cost=way).usd == pytest.approx(30.3)


def test_a_cluster_that_has_the_job_wait_for_spot_has_on_demand_and_places_it_nowhere():
    waiting, undated = market(dry_pool(spot()), on_demand()), job(deadline=None)
    forecast = forecast_job(undated, waiting, NOW)
    assert (forecast.feasible, forecast.placed, forecast.dry_since) == (True, False, NOW - 3 * HOUR)
    assert forecast.reason == "none of 1 spot pools has capacity for it, and on-demand is not its turn yet"
    assert forecast.on_demand_usd == pytest.approx(3.0 * 10.1)
    assert forecast_job(job(deadline=None, outlook=None), waiting, NOW).on_demand_usd == pytest.approx(3.0 * 24)
    assert forecast_job(undated, market(spot(), on_demand()), NOW).placed
    assert forecast_job(undated, waiting, NOW, held_pool=SPOT).placed
    assert forecast_job(job(deadline=None, priority=Priority.CRITICAL), waiting, NOW).placed
    assert forecast_job(undated, waiting, NOW + 24 * HOUR).placed  # which is when on-demand is its turn
    assert forecast_job(undated, market(on_demand()), NOW).placed  # where there is no spot to wait for


def test_spot_that_never_lasts_as_long_as_a_changeover_places_no_job_either():
    brief = Behaviour(up=True, since=NOW - 0.02 * HOUR, first=NOW - HOUR, ups=(0.03,) * 4, downs=(0.2,) * 4)
    forecast = forecast_job(job(deadline=80.0), market(spot(behaviour=brief), on_demand()), NOW)
    assert (forecast.feasible, forecast.placed) == (True, False)
    assert forecast.reason == "spot there has not lasted long enough for it, and on-demand is not its turn yet"


def test_a_visit_goes_on_with_the_wait_that_began_at_home():
    waiting, visit_fields = market(dry_pool(spot()), on_demand()), {"home": "h", "job_id": "j", "number": 1}
    for since, placed in ((NOW - 25 * HOUR, True), (NOW - 2 * HOUR, False), (None, False)):
        submission = job(deadline=None).submission.model_copy(
            update={"visit": Visit(**visit_fields, waits_since=since)}
        )
        assert forecast_job(job(deadline=None, submission=submission), waiting, NOW).placed is placed


def test_elsewhere_a_changeover_takes_as_long_as_it_does_there():
    slow = Changeover(expected=0.5 * HOUR, upper=HOUR)
    forecast = forecast_job(job(), market(on_demand(), changeover=slow), NOW, move_cost=MoveCost.for_bytes(0, 0, 1))
    assert forecast.usd == pytest.approx(3.0 * 10.5)
    assert forecast.done_by == NOW + 13 * HOUR + TICK + timedelta(minutes=10)


def test_where_all_pools_are_dry_there_is_nothing_and_the_end_is_as_late_as_the_drought_is_long():
    forecast = forecast_job(job(), market(dry_pool(spot()), dry_pool(on_demand())), NOW)
    assert not forecast.feasible and forecast.dry_since == NOW - 3 * HOUR
    assert forecast.done_by == NOW + 15.25 * HOUR + TICK
    assert forecast.reason == "none of 2 pools has capacity for it"


def test_what_never_fits_is_dry_without_a_beginning():
    forecast = forecast_job(job(gpus=8), market(on_demand()), NOW)
    assert (forecast.feasible, forecast.dry_since, forecast.usd, forecast.done_by) == (False, None, None, None)
    assert forecast.reason == "no instance type there can hold it"


def test_the_cap_and_what_is_promised_to_others_leave_no_room():
    full = Headroom(instances=1, usd_per_hour=None)
    assert forecast_job(job(), market(on_demand(), headroom=full), NOW).feasible
    assert not forecast_job(job(nodes=2), market(on_demand(), headroom=full), NOW).feasible
    forecast = forecast_job(job(), market(on_demand(), headroom=full, promised=1), NOW)
    assert (forecast.feasible, forecast.reason, forecast.done_by) == (False, "the cap leaves no room for it", None)
    assert not forecast_job(job(), market(on_demand(), headroom=Headroom(instances=9, usd_per_hour=2.9)), NOW).feasible
    assert not forecast_job(job(), market(on_demand(available=2), promised=2), NOW).feasible


def test_what_a_job_holds_is_there_for_it():
    dry = market(dry_pool(spot()), dry_pool(on_demand()))
    on_spot, fixed = (forecast_job(job(), dry, NOW, held_pool=pool) for pool in (SPOT, DEAR))
    assert on_spot.feasible and on_spot.done_by == NOW + 15.25 * HOUR + TICK
    assert fixed.feasible and fixed.done_by == NOW + 12 * HOUR and fixed.usd < 3.0 * 10.1
    assert fixed.restart_by == on_spot.restart_by == NOW + 15.25 * HOUR + TICK  # once given up, it has to come back
    full = market(on_demand(), headroom=Headroom(instances=0, usd_per_hour=None))
    assert forecast_job(job(), full, NOW, held_pool=DEAR).restart_by is None


def test_of_a_job_of_unknown_length_only_the_price_of_an_hour_is_known():
    forecast = forecast_job(job(outlook=None), market(spot(), on_demand()), NOW)
    assert (forecast.feasible, forecast.usd, forecast.done_by, forecast.usd_per_hour) == (True, None, None, 1.0)


def test_the_market_of_a_view_counts_what_runs_under_its_cap():
    running = instance_view(instance_id="i", launched_for="x", pool=DEAR)
    view = cluster_view(pools=(on_demand(),), instances=(running,), cap=Cap(instances=3, usd_per_hour=8.0))
    assert ClusterMarket.from_view("c", view).headroom == Headroom(instances=2, usd_per_hour=5.0)
    assert ClusterMarket.from_view("c", cluster_view()).headroom is None


def test_pools_together_are_up_while_any_of_them_is():
    def observed_behaviour(*changes):
        behaviour = Behaviour()
        for at, up in changes:
            behaviour = behaviour.observe(up, NOW + at * HOUR)
        return behaviour

    first, other = observed_behaviour((0, True), (2, False), (6, True)), observed_behaviour((1, True), (4, False))
    assert joined([first, other]) == observed_behaviour((0, True), (4, False), (6, True))
    assert joined([Behaviour(), first]) == first and joined([]) == Behaviour()


def test_a_job_that_is_over_cancelled_or_may_not_run_now_is_offered_to_nobody():
    assert may_move(job(), NOW)
    assert not may_move(job(cancel=True), NOW)
    assert not may_move(job(after=(("other", JobState.RUNNING),)), NOW)
    over = JobRecord(job_id="j", state=JobState.FAILED, changed_at=NOW)
    assert not may_move(job(record=over), NOW)
    backing_off = JobRecord(job_id="j", state=JobState.PENDING, changed_at=NOW, not_before=NOW + HOUR)
    assert not may_move(job(record=backing_off), NOW) and may_move(job(record=backing_off), NOW + HOUR)


spells = st.lists(st.floats(0.05, 30), max_size=6)


@st.composite
def pools(draw: st.DrawFn, kind: Market, usd: float):
    up, age = draw(st.booleans()), draw(st.floats(0, 40))
    behaviour = Behaviour(up=up, since=NOW - age * HOUR, ups=tuple(draw(spells)), downs=tuple(draw(spells)))
    free = draw(st.sampled_from([None, 0, 1, 5]))
    return pool_view(
        instance_type=KIND, zone="a", market=kind, usd_per_hour=usd, behaviour=behaviour, available=free if up else 0
    )


@given(
    pools(Market.SPOT, 1.0),
    pools(Market.ON_DEMAND, 3.0),
    st.builds(job, hours=st.floats(0.2, 60), deadline=st.one_of(st.none(), st.floats(0.5, 120))),
    st.builds(MoveCost.for_bytes, st.floats(0, 200), st.floats(0, 0.2), st.just(180.0)),
    st.sampled_from([None, SPOT, DEAR]),
)
def test_nobody_moves_between_clusters_that_are_alike(pool, other, job, way, held_pool):
    """The way there only costs and takes time: what is as it is here cannot be better there."""
    here = forecast_job(job, market(pool, other, cluster="here"), NOW, held_pool=held_pool)
    peer_forecast = forecast_job(job, market(pool, other), NOW, move_cost=way)
    traveller = MovableJob(job_id="j", deadline_at=job.submission.deadline_at, has_instance=held_pool is not None)
    assert decide_move(traveller, here, [peer_forecast], MoveTerms(), NOW) is None
    assert peer_forecast.done_by is None or here.done_by is None or peer_forecast.done_by >= here.done_by
