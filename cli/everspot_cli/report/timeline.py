"""The timeline as SVG: a row for each instance, a bar for each job on it, and a mark for each event."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape

from everspot_core.costs.bill import InstanceBill, Usage
from everspot_core.jobs.records import Event, EventKind, Reason, Role

from everspot_cli.report.colours import DISTINCT, fill, swatch, warning
from everspot_cli.report.gather import Material
from everspot_cli.tables import duration

LABEL, WIDTH, RIGHT = 272, 1180, 28  # units of the drawing
ROW, BAR, TOP = 30, 16, 34
ROWS = 200  # a taller picture shows nothing any more
_STEPS = [timedelta(seconds=s) for s in (1, 2, 5, 10, 15, 30)] + [
    timedelta(minutes=m) for m in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080)
]


@dataclass(frozen=True)
class Axis:
    """The axis, which maps moments to positions. It is at least a minute long."""

    start: datetime
    end: datetime

    @classmethod
    def over(cls, start: datetime, end: datetime) -> "Axis":
        """Return the axis from one moment to another, at least a minute long."""
        return cls(start, max(end, start + timedelta(minutes=1)))

    def x(self, moment: datetime) -> float:
        """Return the position of a moment, kept inside the drawing."""
        share = (moment - self.start) / (self.end - self.start)
        return round(LABEL + (WIDTH - LABEL - RIGHT) * min(max(share, 0.0), 1.0), 1)

    def ticks(self) -> list[datetime]:
        """At most twelve round moments."""
        span = self.end - self.start
        step = next((s for s in _STEPS if span / s <= 12), _STEPS[-1])
        since = timedelta(seconds=self.start.timestamp() % step.total_seconds())
        first = self.start - since + step
        return [first + n * step for n in range(int((self.end - first) / step) + 1)] if first <= self.end else []


def draw(material: Material, only: str | None = None) -> str:
    """Return the drawing, `<svg>…</svg>`; a sentence instead if there is nothing to draw."""
    chosen = [i for i in material.bill.instances if only is None or any(u.job_id == only for u in i.usages)]
    if not chosen:
        return "<p>No instance has been launched yet.</p>"
    newest = sorted(chosen, key=lambda i: (i.launch.launched_at, i.launch.instance_id))[-ROWS:]
    ordered = sorted(newest, key=lambda i: (i.launch.role is Role.SCHEDULER, i.launch.instance_type, i.launch.zone,
                                            i.launch.launched_at))  # fmt: skip
    start = min(i.launch.launched_at for i in ordered)
    end = max(i.end for i in ordered)
    axis = Axis.over(start, end)
    colour = {job: index for index, job in enumerate(material.submissions)}
    height = TOP + ROW * len(ordered) + 8
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Timeline of instances and jobs">',
        *grid(axis, height),
    ]
    pool = None
    for index, instance in enumerate(ordered):
        top = TOP + index * ROW
        here = (instance.launch.instance_type, instance.launch.zone)
        if here != pool and index:
            parts.append(f'<line class="pool" x1="0" x2="{WIDTH}" y1="{top - 1}" y2="{top - 1}"/>')
        parts += _row(material, axis, instance, top, colour, only)
        pool = here
    omitted = len(chosen) - len(newest)
    note = (
        f"\n<p>The {ROWS} instances that were launched last; {omitted} older ones are left out of it.</p>"
        if omitted
        else ""
    )
    return "\n".join([*parts, "</svg>"]) + note


def legend(material: Material, only: str | None = None) -> str:
    """Return the meaning of colours and marks. A job that never had an instance has no bar, so it is not listed."""
    ran = {bill.job_id for bill in material.bill.jobs if bill.attempts}
    jobs = [
        f"<span><i {swatch(index)}></i>{escape(job)}</span>"
        for index, job in enumerate(material.submissions)
        if job in ran and only in (None, job)
    ]
    marks = [
        '<span><i class="swatch idle"></i>boot and idling</span>',
        '<span><b class="m-checkpoint">│</b> checkpoint</span>',
        '<span><b class="m-notice">▼</b> notice</span>',
        '<span><b class="m-lost">✕</b> lost without notice</span>',
        '<span><b class="m-taken">■</b> taken by the cloud</span>',
        '<span><b class="m-done">●</b> finished</span>',
    ]
    few = jobs if len(jobs) <= DISTINCT else [f"<span>{escape(warning(len(jobs)))}</span>"]
    return f'<p class="legend">{"".join([*few, *marks])}</p>'


def grid(axis: Axis, height: int) -> Iterable[str]:
    """Grid lines at round moments, with their times."""
    long = axis.end - axis.start > timedelta(days=1)
    for tick in axis.ticks():
        x = axis.x(tick)
        label = f"{tick:%d %b %H:%M}" if long else f"{tick:%H:%M:%S}".removesuffix(":00")
        yield f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP - 8}" y2="{height - 4}"/>'
        yield f'<text class="tick" x="{x}" y="{TOP - 14}">{label}</text>'


def _row(
    material: Material, axis: Axis, instance: InstanceBill, top: int, colour: dict[str, int], only: str | None
) -> list[str]:
    launch, middle = instance.launch, top + ROW / 2
    words = f"{launch.instance_type} {launch.zone}"
    role = " scheduler" if launch.role is Role.SCHEDULER else ""
    parts = [
        f'<text class="name" x="4" y="{middle - 1}">{escape(words)}'
        f'<tspan class="market {launch.market.value}"> {launch.market.value}{role}</tspan></text>',
        f'<text class="id" x="4" y="{middle + 10}">{escape(launch.instance_id)}</text>',
    ]
    lanes = _lanes(instance.usages)
    # Time that no job's share covers is drawn behind the jobs.
    for usage in sorted(instance.usages, key=lambda u: u.job_id is not None):
        parts.append(_bar(axis, usage, instance, top, colour, only, lanes))
    for event in _list_marks(material, launch.instance_id, only):
        parts.append(_mark(axis, event, middle))
    if instance.interrupted:
        x = axis.x(instance.end)
        free = " (free: within the free time)" if instance.free else ""
        parts.append(
            f'<rect class="taken" x="{x - 4}" y="{middle - 4}" width="8" height="8">'
            f"<title>taken by the cloud {instance.end:%H:%M:%S}{free}</title></rect>"
        )
    return parts


def _lanes(usages: Sequence[Usage]) -> dict[str, tuple[float, float]]:
    """For each job that shares the instance, the top and the height of its bar, as fractions of the row."""
    ends: list[datetime] = []
    lane: dict[str, int] = {}
    for usage in sorted((u for u in usages if u.job_id and u.share < 1), key=lambda u: u.paid[0].start):
        job, start = usage.job_id or "", usage.paid[0].start
        free = (n for n, until in enumerate(ends) if until <= start)
        n = lane[job] if job in lane and ends[lane[job]] <= start else next(free, len(ends))
        lane[job] = n
        ends[n:] = [usage.paid[-1].end, *ends[n + 1 :]]
    return {job: (n / len(ends), 1 / len(ends)) for job, n in lane.items()}


def _bar(
    axis: Axis,
    usage: Usage,
    instance: InstanceBill,
    top: int,
    colour: dict[str, int],
    only: str | None,
    lanes: Mapping[str, tuple[float, float]],
) -> str:
    start, end = usage.paid[0].start, min(usage.paid[-1].end, instance.end)
    x, width = axis.x(start), max(axis.x(end) - axis.x(start), 0.6)
    shown = usage.job_id is not None and only in (None, usage.job_id)
    kind = fill(colour[usage.job_id]) if shown and usage.job_id is not None else 'class="idle"'
    # Idle money is as large as it is.
    begins, part = lanes.get(usage.job_id or "", (0, 1)) if usage.share < 1 else (0, 1)
    height = BAR * part
    label = usage.job_id or "boot and idling"
    title = f"{label}: {start:%H:%M:%S} to {end:%H:%M:%S}, {duration(float(usage.seconds))}, ${float(usage.cost):.5f}"
    return (
        f'<rect {kind} x="{x}" y="{top + (ROW - BAR) / 2 + begins * BAR:g}" width="{width:.1f}" '
        f'height="{height:g}" rx="2">'
        f"<title>{escape(title)}</title></rect>"
    )


_OWN_WISH = (Reason.CANCEL.value, Reason.BUDGET.value, Reason.UNDERUSED.value, Reason.CAP.value, Reason.WINDOW.value)
"""Reasons to stop a job that do not come from the cloud, so that they are no notice of the instance's end."""


def _list_marks(material: Material, instance: str, only: str | None) -> list[Event]:
    drawn = {EventKind.CHECKPOINTED, EventKind.STOP_DEMANDED, EventKind.LOST, EventKind.FINISHED}
    marked = []
    for job, events in material.events.items():
        owners = {e.epoch: e.instance_id for e in events if e.kind is EventKind.ASSIGNED}
        for event in events:
            # A scheduler's word about a lost owner is drawn at that owner.
            where = event.instance_id or owners.get(event.epoch)
            requested = event.kind is EventKind.STOP_DEMANDED and event.data.get("source") in _OWN_WISH
            shown = event.kind in drawn and not requested
            if shown and where == instance and only in (None, job):
                marked.append(event)
    order = [EventKind.CHECKPOINTED, EventKind.FINISHED, EventKind.STOP_DEMANDED, EventKind.LOST]
    return sorted(marked, key=lambda e: (order.index(e.kind), e.at))


def _mark(axis: Axis, event: Event, middle: float) -> str:
    x, y, data = axis.x(event.at), middle, event.data
    if event.kind is EventKind.CHECKPOINTED:
        shape = f'<line class="checkpoint" x1="{x}" x2="{x}" y1="{y - 8}" y2="{y + 8}">'
        end, caption = "</line>", f"checkpoint at step {data.get('step')} ({data.get('trigger')})"
    elif event.kind is EventKind.STOP_DEMANDED:
        shape = f'<path class="notice" d="M{x - 5} {y - 13}h10l-5 9z">'
        end, caption = "</path>", f"notice ({data.get('source')})"
    elif event.kind is EventKind.LOST:
        shape = f'<path class="lost" d="M{x - 5} {y - 5}l10 10m0 -10l-10 10">'
        end, caption = "</path>", f"lost without notice ({data.get('cause')}), last step {data.get('step')}"
    else:
        shape, end, caption = f'<circle class="done" cx="{x}" cy="{y}" r="4">', "</circle>", "finished"
    return f"{shape}<title>{escape(event.job_id)}: {escape(caption)}, {event.at:%H:%M:%S}</title>{end}"
