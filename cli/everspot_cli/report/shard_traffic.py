"""The bytes of streamed datasets in a report: fetched from the bucket, and not fetched twice."""

from collections.abc import Mapping, Sequence
from typing import Any

from everspot_core.counting import size
from everspot_core.jobs.records import Event, JobRecord
from everspot_core.jobs.shard_traffic import job_traffic


def describe_traffic(record: JobRecord, events: Sequence[Event]) -> dict[str, int] | None:
    """Return the bytes that a job streamed in all its attempts; None if it streams nothing."""
    traffic = job_traffic(events, record.epoch, record.progress.shard_traffic)
    return None if traffic is None else traffic.model_dump()


def sum_streamed(jobs: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the sums over the jobs of a report."""
    rows = [job["streamed"] for job in jobs if job["streamed"] is not None]
    return {
        "jobs": len(rows),
        "fetched_bytes": sum(row["fetched_bytes"] for row in rows),
        "cached_bytes": sum(row["cached_bytes"] for row in rows),
    }


def describe_streamed(report: Mapping[str, Any]) -> str | None:
    """Return what the shard caches saved, in one line; None if no job streams a dataset."""
    streamed = report["streamed"]
    if not streamed["jobs"]:
        return None
    return f"{size(streamed['cached_bytes'])} not fetched twice; {size(streamed['fetched_bytes'])} fetched"
