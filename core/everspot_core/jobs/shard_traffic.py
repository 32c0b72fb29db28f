"""The bytes of streamed datasets that a job fetched from the store, and the bytes that it read from the shard cache."""

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationError

from everspot_core.documents import Stored
from everspot_core.jobs.events import Event, EventKind
from everspot_core.jobs.reported_values import keep_within

SHARD_TRAFFIC = "shard_traffic"
"""In the data of an event that ends an attempt: its traffic. In that of a start under the same epoch, by an agent that
was restarted: the traffic of the agent before."""

Bytes = Annotated[int, BeforeValidator(keep_within(0, 2**62, 0))]


class ShardTraffic(Stored):
    """The bytes of shards that the processes of a job have opened."""

    fetched_bytes: Bytes = Field(default=0, description="Downloaded from the data bucket.")
    cached_bytes: Bytes = Field(
        default=0, description="Found in the machine's cache, and so not fetched again by the process that opened them."
    )


def sum_traffic(parts: Iterable[ShardTraffic]) -> ShardTraffic:
    """Return the sum. It is exact."""
    traffic = list(parts)
    return ShardTraffic(
        fetched_bytes=sum(part.fetched_bytes for part in traffic),
        cached_bytes=sum(part.cached_bytes for part in traffic),
    )


def job_traffic(
    events: Sequence[Event], epoch: int | None = None, present: ShardTraffic | None = None
) -> ShardTraffic | None:
    """Return the traffic of a job over all its attempts; None if it streams nothing.

    Args:
        events: of the job. An attempt that is over counts by its last event.
        epoch: of the job's record.
        present: the traffic in the job's record, which counts if no event has that of its attempt.
    """
    earlier: list[ShardTraffic] = []
    by_epoch: dict[int, ShardTraffic] = {}
    for event in sorted(events, key=lambda event: (event.at, event.seq)):
        if SHARD_TRAFFIC not in event.data:
            continue
        try:
            traffic = ShardTraffic.model_validate(event.data[SHARD_TRAFFIC])
        except ValidationError:
            continue
        if event.kind is EventKind.STARTED:
            earlier.append(traffic)
            by_epoch.pop(event.epoch, None)
        else:
            by_epoch[event.epoch] = traffic
    if epoch is not None and present is not None:
        by_epoch.setdefault(epoch, present)
    parts = [*earlier, *by_epoch.values()]
    return sum_traffic(parts) if parts else None
