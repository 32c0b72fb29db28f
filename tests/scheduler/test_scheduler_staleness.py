"""Staleness is judged by ETags over the observer's own clock, and never too early."""

from dataclasses import dataclass
from datetime import timedelta

from everspot_scheduler.backoff import Backoff
from everspot_scheduler.staleness import Staleness

TTL = timedelta(seconds=15)


@dataclass
class Doc:
    etag: str


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def look(staleness: Staleness, at: float, took: float = 0, **etags: str) -> frozenset[str]:
    staleness.observe({n: Doc(e) for n, e in etags.items()}, seconds(at), seconds(at + took))
    return staleness.stale(TTL)


def test_a_document_is_stale_when_its_etag_stood_still_for_the_limit() -> None:
    s = Staleness()
    assert look(s, 100, a="1", b="1") == set()
    assert look(s, 114.9, a="1", b="2") == set()
    assert look(s, 115, a="1", b="2") == {"a"}
    assert look(s, 116, a="2", b="2") == set()
    assert look(s, 130, a="2", b="2") == {"b"}


def test_the_time_that_reading_takes_is_never_counted_against_the_owner() -> None:
    s = Staleness()
    look(s, 0, took=5, a="1")  # it may have been written just before the end of this read
    assert look(s, 15, took=5, a="1") == set()
    assert look(s, 19.9, took=5, a="1") == set()
    assert look(s, 20, took=5, a="1") == {"a"}


def test_an_outage_of_the_store_is_not_counted_against_the_owners() -> None:
    s = Staleness(TTL / 2)
    look(s, 0, a="1", b="1")
    assert look(s, 5, a="1", b="1") == set()
    assert look(s, 100, a="1", b="1") == set()  # of 95 s in which nobody could write, 7.5 count
    assert look(s, 102.4, a="1", b="2") == set()
    assert look(s, 102.5, a="1", b="2") == {"a"}


def test_one_that_was_away_starts_anew() -> None:
    s = Staleness()
    look(s, 0, a="1")
    look(s, 10)
    assert look(s, 20, a="1") == set()


def test_a_pace_keeps_its_distance_and_widens_it_when_throttled() -> None:
    backoff = Backoff(seconds(10))
    assert backoff.due(seconds(0))
    backoff.called(seconds(0))
    assert not backoff.due(seconds(9))
    assert not backoff.due(seconds(1), urgent=True)
    assert backoff.due(seconds(2), urgent=True)
    for factor in (2, 4, 8, 16, 16):
        backoff.throttled()
        assert not backoff.due(seconds(10 * factor - 1), urgent=True)
        assert backoff.due(seconds(10 * factor))
    backoff.went_well()
    assert backoff.due(seconds(10))
