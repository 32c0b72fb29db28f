"""Rightsizing: the type that does a job for the least money."""

from datetime import timedelta
from math import inf

import pytest
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.job import Resources
from everspot_core.schedule import Outlook
from everspot_core.schedule.market.rightsize import PricedType, rightsize
from hypothesis import given
from hypothesis import strategies as st
from view_helpers import outlook_view

HOUR = timedelta(hours=1)


def work(hours: float, *, upper: float | None = None, changeover: float = 0, changeover_upper: float = 0) -> Outlook:
    return outlook_view(
        remaining=hours * HOUR,
        remaining_upper=(hours if upper is None else upper) * HOUR,
        changeover=changeover * HOUR,
        changeover_upper=changeover_upper * HOUR,
    )


def candidate(name: str, usd: float, speed: float | None, *, measured: bool = True, **shape) -> PricedType:
    kind = InstanceType(name=name, **{"vcpus": 8, "memory_gib": 32, **shape})
    return PricedType(instance_type=kind, usd_per_hour=usd, speed=speed, measured=measured)


FAST, CHEAP = candidate("fast", 4.00, 1.0), candidate("cheap", 1.40, 1 / 2.2)


def names(sized) -> list[str]:
    return [s.priced.instance_type.name for s in sized if not s.excluded]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (None, ["cheap", "fast"]),
        (2.2, ["cheap", "fast"]),
        (2.19, ["fast"]),
        (1.0, ["fast"]),
        (0.99, []),
    ],
)
def test_the_slower_type_is_taken_where_it_costs_less_and_the_deadline_allows_it(time, expected):
    sizes = rightsize(
        [FAST, CHEAP], need=Resources(), work=work(1), time=None if time is None else timedelta(hours=time)
    )
    assert names(sizes) == expected
    figures = {s.priced.instance_type.name: (s.hours, s.usd) for s in sizes}
    assert figures == {"fast": (1.0, 4.0), "cheap": (pytest.approx(2.2), pytest.approx(3.08))}


def test_deadlines_are_met_by_upper_bounds_and_money_is_what_is_expected():
    outlook = work(2, upper=3, changeover=0.1, changeover_upper=0.5)
    (only,) = rightsize([candidate("t", 2.0, 2.0)], need=Resources(), work=outlook, time=2 * HOUR, nodes=4)
    assert (only.hours, only.hours_upper, only.usd, only.excluded) == (1.1, 2.0, 8.8, ())
    (late,) = rightsize([candidate("t", 2.0, 2.0)], need=Resources(), work=outlook, time=1.99 * HOUR)
    assert late.excluded == ("deadline",)


def test_of_equals_the_faster_one_goes_first_then_the_measured_one_then_by_name():
    sizes = rightsize(
        [
            candidate("slow", 1.0, 0.5),
            candidate("guess", 2.0, 1.0, measured=False),
            candidate("b", 2.0, 1.0),
            candidate("a", 2.0, 1.0),
        ],
        need=Resources(),
        work=work(1),
        time=None,
    )
    assert names(sizes) == ["a", "b", "guess", "slow"]
    assert [s.measured for s in sizes] == [True, True, False, True]


def test_where_nothing_fits_each_says_why():
    sizes = rightsize(
        [
            candidate("small", 0.1, 1.0, gpus=1, gpu="T4", gpu_memory_gib=16),
            candidate("slow", 0.2, 0.01, gpus=8, gpu="A100", gpu_memory_gib=80),
            candidate("unknown", 0.3, None, gpus=8, gpu="A100", gpu_memory_gib=80),
        ],
        need=Resources(gpus=4, gpu="a100", gpu_memory_gib=40, memory_gib=64),
        work=work(1),
        time=10 * HOUR,
    )
    assert {s.priced.instance_type.name: s.excluded for s in sizes} == {
        "small": ("gpus", "gpu", "gpu_memory_gib", "memory_gib"),
        "slow": ("memory_gib", "deadline"),
        "unknown": ("memory_gib", "speed"),
    }
    assert [s.usd for s in sizes if s.priced.speed is None] == [inf]
    assert rightsize([], need=Resources(), work=work(1), time=None) == []


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10), st.integers(1, 16)), min_size=1, max_size=8),
    st.floats(0.1, 20),
    st.floats(0.1, 40),
)
def test_nothing_that_fits_and_arrives_is_cheaper_than_the_first(offers, hours, time):
    candidates = [candidate(f"t{n}", usd, speed, vcpus=v) for n, (usd, speed, v) in enumerate(offers)]
    sizes = rightsize(candidates, need=Resources(vcpus=4), work=work(hours), time=timedelta(hours=time))
    able = [usd * hours / speed for usd, speed, v in offers if v >= 4 and hours / speed <= time - 1e-6]
    assert len(sizes) == len(candidates)
    if able:
        assert not sizes[0].excluded
        assert sizes[0].usd <= min(able) * (1 + 1e-9) + 1e-9
