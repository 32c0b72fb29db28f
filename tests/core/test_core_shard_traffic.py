"""The bytes of streamed datasets are summed exactly over the attempts of a job."""

from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.jobs.records import Event, EventKind
from everspot_core.jobs.shard_traffic import ShardTraffic, job_traffic

AT = datetime(2026, 1, 2, tzinfo=UTC)
HUGE = 2**60 + 1  # no float holds it


def event(number: int, epoch: int, kind: EventKind, fetched: object, cached: object = 0) -> Event:
    data = {"shard_traffic": {"fetched_bytes": fetched, "cached_bytes": cached}} if fetched is not None else {}
    at = AT + timedelta(minutes=number)
    return Event.model_validate(
        {"job_id": "a", "epoch": epoch, "seq": number, "writer": "i-1", "at": at, "kind": kind, "data": data}
    )


def test_every_attempt_counts_once_and_the_sum_is_exact() -> None:
    events = [
        event(0, 1, EventKind.STARTED, None),
        event(1, 1, EventKind.LOST, HUGE, 5),
        event(2, 1, EventKind.INTERRUPTED, HUGE + 2, 7),  # it lived, and said more
        event(3, 2, EventKind.STARTED, 10, 1),  # by an agent that was restarted: what the one before had
        event(4, 2, EventKind.FINISHED, 100, 1000),
    ]
    total = ShardTraffic(fetched_bytes=HUGE + 2 + 110, cached_bytes=1008)
    assert job_traffic(events) == total
    assert job_traffic(events[::-1]) == total
    assert job_traffic(events, 2, ShardTraffic(fetched_bytes=9, cached_bytes=9)) == total  # the event is newer
    present = ShardTraffic(fetched_bytes=1, cached_bytes=2)
    assert job_traffic(events, 3, present) == ShardTraffic(fetched_bytes=HUGE + 113, cached_bytes=1010)


def test_a_job_that_streams_nothing_has_no_traffic() -> None:
    assert job_traffic([event(0, 1, EventKind.FINISHED, None)], 1, None) is None


@pytest.mark.parametrize("value", ["x", -1, 2**63, None, [], 1e30])
def test_what_a_program_reports_may_be_anything(value: object) -> None:
    broken = event(0, 1, EventKind.FINISHED, 1).model_copy(update={"data": {"shard_traffic": {"fetched_bytes": value}}})
    assert job_traffic([broken]) in (None, ShardTraffic())
