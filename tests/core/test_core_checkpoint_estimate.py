"""Whether a checkpoint of a declared size fits into the notice, by the network of each type."""

from datetime import timedelta

import pytest
from everspot_core.capacity.catalogue import InstanceType, builtin
from everspot_core.jobs.checkpoint_estimate import ASSUMED_GBPS, describe_estimates, estimate_types
from everspot_core.jobs.checkpoint_interval import NoticeTime
from everspot_core.jobs.job import CheckpointPolicy

NOTICE = NoticeTime(timedelta(seconds=120), timedelta(seconds=7))


def kind(name: str, gbps: float | None) -> InstanceType:
    return InstanceType(name=name, vcpus=4, memory_gib=16, network_gbps=gbps)


SLOW, FAST, UNKNOWN = kind("slow", 2.5), kind("fast", 100), kind("unknown", None)


def sentence(kinds: list[InstanceType], **checkpoint: object) -> str:
    policy = CheckpointPolicy.model_validate(checkpoint)
    return describe_estimates(policy, estimate_types(policy, kinds, NOTICE), NOTICE)


def test_nothing_is_estimated_without_a_declared_size() -> None:
    assert estimate_types(CheckpointPolicy(), [SLOW], NOTICE) == ()
    assert estimate_types(CheckpointPolicy(state_gib=1), [], NOTICE) == ()


@pytest.mark.parametrize(
    ("gib", "gbps", "seconds", "fits"),
    [(1, 2.5, 3.436, True), (32, 2.5, 109.95, True), (33, 2.5, 113.39, False), (150, 100, 12.885, True)],
)
def test_a_checkpoint_takes_its_size_at_the_speed_of_the_network(gib, gbps, seconds, fits) -> None:
    (estimate,) = estimate_types(CheckpointPolicy(state_gib=gib), [kind("a", gbps)], NOTICE)
    assert estimate.durable.total_seconds() == pytest.approx(seconds, rel=1e-3)
    assert (estimate.fits, estimate.is_assumed) == (fits, False)


def test_a_network_that_is_not_known_is_an_assumption() -> None:
    (estimate,) = estimate_types(CheckpointPolicy(state_gib=10), [UNKNOWN], NOTICE)
    assert (estimate.network_gbps, estimate.is_assumed) == (ASSUMED_GBPS, True)
    assert sentence([UNKNOWN], state_gib=10) == (
        "a checkpoint of 10 GiB takes at least 8.6 s from unknown (10 Gbit/s, an assumption), within a notice of 120 s"
    )


@pytest.mark.parametrize(
    ("checkpoint", "loss"),
    [
        ({}, "17.2 min of work"),  # twice the time of a checkpoint
        ({"every": "30m"}, "38.6 min of work"),
        ({"every": "10s"}, "17.2 min of work"),  # one begins when the one before is durable
        ({"steps": 500}, "500 steps and 8.59 min of work"),
        ({"every": "30m", "steps": 500}, "38.6 min of work, or 500 steps and 8.59 min of work, whichever is less"),
    ],
)
def test_what_a_notice_costs_is_told_in_one_sentence(checkpoint, loss) -> None:
    assert sentence([SLOW, FAST], state_gib=150, **checkpoint) == (
        "a checkpoint of 150 GiB takes at least 515 s from slow (2.5 Gbit/s), longer than a notice of 120 s leaves: an "
        f"interruption costs up to {loss}; it fits on fast"
    )


def test_of_many_types_the_slowest_is_told_and_three_others() -> None:
    kinds = [kind(f"t{n}", n) for n in (1, 2, 3, 4, 5)]
    assert sentence(kinds, state_gib=100).endswith(
        "costs up to 28.6 min of work; it is too long for t2, t3, t4 and 1 more as well"
    )
    assert "from slow (2.5 Gbit/s), within" in sentence([FAST, SLOW], state_gib=1)


def test_the_catalogue_knows_the_network_of_the_gpu_types_of_one_cloud() -> None:
    types = builtin().types
    bandwidths = {
        name: types[name].network_gbps for name in ("g4dn.xlarge", "g5.xlarge", "g5.12xlarge", "p4d.24xlarge")
    }
    assert bandwidths == {"g4dn.xlarge": 5, "g5.xlarge": 2.5, "g5.12xlarge": 40, "p4d.24xlarge": 100}
    assert types["g2-standard-4"].network_gbps is None
