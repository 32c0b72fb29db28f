"""The last values of a job's metrics, from its record and from its last event, which may be newer."""

from collections.abc import Iterable
from sys import float_info

from everspot_core.jobs.events import Event, EventKind
from everspot_core.jobs.records import JobRecord
from everspot_core.jobs.reported_values import parse_number


def final_metrics(record: JobRecord, events: Iterable[Event]) -> dict[str, float]:
    """Return the metrics of a job by name, without values that are not finite."""
    reported = next((e.data.get("metrics") for e in events if e.kind is EventKind.FINISHED), None)
    numbers = {
        name: parse_number(value, -float_info.max, float_info.max)
        for name, value in (reported.items() if isinstance(reported, dict) else ())
    }
    return {**record.progress.metrics, **{name: value for name, value in numbers.items() if value is not None}}
