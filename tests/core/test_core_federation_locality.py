"""The bytes that a move sends, their price, and what they change of the decision where a job goes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.federation.data_locality import Inputs, describe_inputs, measure_files
from everspot_core.federation.decision import DEFAULT, Forecast, MovableJob, MoveWhy, decide_move, describe_move
from everspot_core.federation.forecast import MoveCost
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
GB = 10**9
digests = st.sampled_from("abcdefgh")
SIZES = {digest: 1 + place * 7 for place, digest in enumerate("abcdefgh")}
datasets = st.lists(st.sets(digests).map(lambda names: {name: SIZES[name] for name in names}), max_size=4)
inputs = st.builds(
    Inputs,
    checkpoint_bytes=st.integers(0, 10**12),
    data_bytes=st.integers(0, 10**13),
    present_bytes=st.integers(0, 10**13),
)


@given(datasets, st.sets(digests))
def test_a_move_sends_each_file_once_that_the_other_cluster_lacks(needed, present):
    measured = measure_files(needed, present)
    lacking = set().union(*needed) - present
    assert measured.sent_bytes == sum(SIZES[name] for name in lacking)
    assert measured == measure_files([*needed, *needed], present)
    assert measure_files(needed, present | lacking).sent_bytes == 0


@given(datasets, st.sets(digests), digests)
def test_a_cluster_with_one_file_more_never_gets_more_bytes(needed, present, more):
    assert measure_files(needed, present | {more}).sent_bytes <= measure_files(needed, present).sent_bytes


@given(inputs, st.floats(0, 1), st.floats(1, 1000))
def test_the_price_and_the_time_of_a_move_follow_the_bytes_that_are_sent(needed, price, speed):
    way = MoveCost.for_inputs(needed, price, speed)
    assert way.usd == pytest.approx(needed.sent_bytes / GB * price)
    assert way.usd >= 0 and timedelta(0) < way.expected <= way.upper
    nothing = MoveCost.for_inputs(Inputs(), price, speed)
    longer = way + nothing
    assert longer.usd == way.usd and longer.inputs == nothing.inputs


def at(name: str, work: float, move_cost: MoveCost) -> Forecast:
    """A cluster with capacity, where the remaining work costs `work` without the move."""
    return Forecast(
        cluster=name, feasible=True, usd=work + move_cost.usd, done_by=None, move_usd=move_cost.usd,
        inputs=move_cost.inputs,
    )  # fmt: skip


JOB = MovableJob(job_id="j", deadline_at=None)
DRY = Forecast(cluster="home", feasible=False, placed=False, usd=None, done_by=None, dry_since=None)
ways = inputs.map(lambda needed: MoveCost.for_inputs(needed, 0.09, 200))


@given(st.floats(0.1, 1000), ways, ways)
def test_of_two_clusters_with_the_same_prices_the_one_that_lacks_fewer_bytes_gets_the_job(work, first, second):
    move = decide_move(JOB, DRY, [at("first", work, first), at("second", work, second)], DEFAULT, NOW)
    assert move is not None and move.reason is MoveWhy.NO_CAPACITY
    assert move.target.usd == min(work + first.usd, work + second.usd)


@given(st.floats(0, 1000), st.floats(0, 1000), ways)
def test_a_job_never_moves_to_save_less_than_its_data_costs_to_send(home_usd, peer_usd, way):
    running = replace(JOB, has_instance=True)
    home = Forecast(cluster="home", feasible=True, usd=home_usd, done_by=None)
    move = decide_move(running, home, [at("peer", peer_usd, way)], DEFAULT, NOW)
    assert move is None or home_usd - peer_usd - way.usd > DEFAULT.saving_factor * way.usd


@pytest.mark.parametrize(
    ("needed", "usd", "sentence"),
    [
        pytest.param(Inputs(), 0.0, "", id="it needs nothing"),
        pytest.param(Inputs(data_bytes=12 * GB), 1.08, "12 GB are sent there for $1.08", id="all is missing"),
        pytest.param(
            Inputs(checkpoint_bytes=GB, data_bytes=12 * GB, present_bytes=10 * GB), 0.27,
            "3 GB are sent there for $0.27; 10 GB of its data are there already", id="some is there",
        ),
        pytest.param(
            Inputs(data_bytes=12 * GB, present_bytes=12 * GB), 0.0, "nothing is sent: all 12 GB of its data are there",
            id="all is there",
        ),
        pytest.param(Inputs(data_bytes=1000), 0.00009, "1 KB are sent there for less than $0.01", id="not for $0.00"),
    ],
)  # fmt: skip
def test_the_reason_of_a_move_says_what_is_sent_and_for_how_much(needed, usd, sentence):
    assert describe_inputs(needed, usd) == sentence
    move = decide_move(JOB, DRY, [replace(at("peer", 5.0, MoveCost.for_bytes(0, 0, 1)), inputs=needed, move_usd=usd)],
                  DEFAULT, NOW)  # fmt: skip
    assert describe_move(move).endswith(f"; {sentence}" if sentence else "has had no capacity for it")
