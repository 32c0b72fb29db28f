"""Traces: parsing, refusals, and spells."""

import json
from datetime import timedelta

import numpy as np
import pytest
from everspot_core.validation.problems import BadInputs
from everspot_simulator import Trace, parse
from hypothesis import given
from hypothesis import strategies as st

GOOD = {"metadata": {"gap_seconds": 300}, "data": [0, 2, 4]}


def test_a_trace_is_read_from_text_and_from_values():
    for content in (GOOD, json.dumps(GOOD)):
        trace = parse(content, "a.json")
        assert (trace.name, trace.gap, len(trace)) == ("a.json", timedelta(minutes=5), 3)
        assert trace.available.tolist() == [0, 2, 4] and trace.prices is None


@pytest.mark.parametrize(
    ("minutes", "available", "prices"),
    [
        (5, [0, 2, 4], [1, 2, 4]),
        # The capacity throughout a tick; the last tick has only ten known minutes.
        (10, [0], [1.5]),
        (15, [0], [7 / 3]),
        (2.5, [0, 0, 2, 2, 4, 4], [1, 1, 2, 2, 4, 4]),
        # 0-4, 4-8 (of two ticks of the trace), 8-12 (of two)
        (4, [0, 0, 2], [1, (1 + 3 * 2) / 4, (2 * 2 + 2 * 4) / 4]),
        (20, [], []),
    ],
)
def test_a_clock_of_whole_ticks_sees_what_there_is_all_through_a_tick(minutes, available, prices):
    trace = parse({**GOOD, "prices": [1, 2, 4]}, "a").on_clock(timedelta(minutes=minutes))
    assert (trace.gap, trace.available.tolist()) == (timedelta(minutes=minutes), available)
    assert trace.prices.tolist() == pytest.approx(prices)


def test_prices_are_read_where_they_are_known():
    assert parse({**GOOD, "prices": [1, 0.5, 2]}, "a").prices.tolist() == [1.0, 0.5, 2.0]
    assert parse({**GOOD, "prices": None}, "a").prices is None


@pytest.mark.parametrize(
    ("change", "paths"),
    [
        ({"metadata": None}, ["metadata.gap_seconds"]),
        ({"metadata": {}}, ["metadata.gap_seconds"]),
        ({"metadata": {"gap_seconds": 0}}, ["metadata.gap_seconds"]),
        ({"metadata": {"gap_seconds": -1}}, ["metadata.gap_seconds"]),
        ({"metadata": {"gap_seconds": "300"}}, ["metadata.gap_seconds"]),
        ({"metadata": {"gap_seconds": True}}, ["metadata.gap_seconds"]),
        ({"metadata": {"gap_seconds": float("nan")}}, ["metadata.gap_seconds"]),
        ({"metadata": {"gap_seconds": float("inf")}}, ["metadata.gap_seconds"]),
        ({"data": None}, ["data"]),
        ({"data": []}, ["data"]),
        ({"data": {"0": 1}}, ["data"]),
        ({"data": [0, -1, 2]}, ["data[1]"]),
        ({"data": [0, 1, 0.5]}, ["data[2]"]),
        ({"data": [True, 1]}, ["data[0]"]),
        ({"data": [0, None]}, ["data[1]"]),
        ({"data": [2**64]}, ["data[0]"]),
        ({"prices": [1.0, 1.0]}, ["prices"]),
        ({"prices": 1.0}, ["prices"]),
        ({"prices": [1.0, 0.0, 1.0]}, ["prices[1]"]),
        ({"prices": [1.0, float("nan"), 1.0]}, ["prices[1]"]),
        ({"prices": [1.0, 1.0, float("inf")]}, ["prices[2]"]),
        ({"prices": [1.0, 1.0, "2"]}, ["prices[2]"]),
        ({"metadata": 1, "data": [-1], "prices": []}, ["metadata.gap_seconds", "data[0]", "prices"]),
    ],
)
def test_every_bad_field_is_named(change, paths):
    with pytest.raises(BadInputs) as caught:
        parse({**GOOD, **change}, "some/where.json")
    assert [p.path for p in caught.value.problems] == paths
    assert "some/where.json" in str(caught.value)
    assert all("must be" in p.reason for p in caught.value.problems)


def test_the_error_counts_the_other_bad_values():
    with pytest.raises(BadInputs, match=r"data\[1\]: must be a whole number >= 0; it is -1 \(and 2 more like it\)"):
        parse({**GOOD, "data": [0, -1, -2, -3]}, "a")


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", '"text"', "3", "null"])
def test_what_is_no_object_is_refused(content):
    with pytest.raises(BadInputs):
        parse(content, "a")


def test_spells_are_those_of_the_whole_gang():
    trace = parse({"metadata": {"gap_seconds": 60}, "data": [4, 4, 3, 0, 4, 1]}, "a")
    spells = trace.spells(4)
    assert (spells.start.tolist(), spells.length.tolist()) == ([0, 2, 4, 5], [2, 2, 1, 1])
    assert spells.up.tolist() == [True, False, True, False]
    assert trace.spells(1).length.tolist() == [3, 1, 2]
    assert trace.spells(5).length.tolist() == [6]


@given(data=st.lists(st.integers(0, 3), min_size=1, max_size=60), nodes=st.integers(1, 3))
def test_spells_tell_the_trace_again(data, nodes):
    spells = parse({"metadata": {"gap_seconds": 60}, "data": data}, "a").spells(nodes)
    assert np.repeat(spells.up, spells.length).tolist() == [n >= nodes for n in data]
    assert (spells.up[1:] != spells.up[:-1]).all() and (spells.length > 0).all()
    assert spells.start.tolist() == [0, *np.cumsum(spells.length)[:-1]]


@given(
    data=st.lists(st.tuples(st.integers(0, 99), st.floats(0.001, 100)), min_size=1, max_size=20),
    seconds=st.sampled_from([1, 32, 195, 0.5, 600]),
    priced=st.booleans(),
)
def test_what_is_written_is_read_again(data, seconds, priced):
    counts, prices = [n for n, _ in data], [p for _, p in data]
    trace = Trace(
        name="a",
        gap=timedelta(seconds=seconds),
        available=np.array(counts),
        prices=np.array(prices) if priced else None,
    )
    again = parse(trace.to_json(), "a")
    assert again.gap == trace.gap and again.available.tolist() == counts
    assert again.prices is None if not priced else again.prices.tolist() == prices


def test_a_trace_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        parse(GOOD, "a").available[0] = 1
