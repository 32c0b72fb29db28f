"""Each job's path as SVG: a row for each job, a bar for each attempt, the time lost between and within them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

from everspot_core.costs.attempts import Attempt, Interruption
from everspot_core.costs.bill import JobBill
from everspot_core.counting import counted
from everspot_core.jobs.records import JobRecord

from everspot_cli.report.colours import fill, swatch
from everspot_cli.report.gather import Material
from everspot_cli.report.timeline import BAR, ROW, ROWS, TOP, WIDTH, Axis, grid
from everspot_cli.tables import duration

_TONE = {"SUCCEEDED": "good", "FAILED": "bad", "CANCELLED": "soft", "SKIPPED": "soft"}

_LEGEND = "".join(
    f'<span><i class="swatch {look}"></i>{caption}</span>'
    for look, caption in (
        ("waiting", "waiting"),
        ("lead", "changeover: it has an instance and does not train yet"),
        ("wasted", "lost: to be done again"),
    )
)


@dataclass(frozen=True)
class Path:
    """The path of a job as it is drawn. `now`: the end of the path of a job that has not ended."""

    job_id: str
    submitted_at: datetime
    record: JobRecord
    attempts: tuple[Attempt, ...]
    interruptions: tuple[Interruption, ...]
    now: datetime

    @property
    def end(self) -> datetime:
        """The end of the job, or now."""
        ends: Sequence[datetime] = [a.end or self.now for a in self.attempts]
        return max([*ends, self.record.changed_at]) if self.record.state.final else self.now


def draw_paths(material: Material, only: str | None = None) -> str:
    """Return the drawing, `<svg>…</svg>`, or "" if no job has had an instance."""
    order = {job: index for index, job in enumerate(material.submissions)}
    chosen = [_path(material, b) for b in material.bill.jobs if b.attempts and only in (None, b.job_id)]
    return draw(chosen, order)


def _path(material: Material, own: JobBill) -> Path:
    job = own.job_id
    submitted, record = material.submissions[job].submitted_at, material.records[job]
    return Path(job, submitted, record, own.attempts, own.interruptions, material.as_of)


def draw(paths: Sequence[Path], order: Mapping[str, int]) -> str:
    """Return the drawing of some jobs that have had an instance; "" without jobs. `order`: the number of each job,
    which gives its colour."""
    if not paths:
        return ""
    newest = sorted(paths, key=lambda p: p.attempts[0].start)[-ROWS:]
    axis = Axis.over(min(p.submitted_at for p in newest), max(p.end for p in newest))
    height = TOP + ROW * len(newest) + 8
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Path of each job over its attempts">',
        *grid(axis, height),
    ]
    for index, own in enumerate(newest):
        parts += _row(axis, own, TOP + index * ROW, order[own.job_id])
    omitted = len(paths) - len(newest)
    note = f"\n<p>The {ROWS} jobs that began last; {omitted} older ones are left out of it.</p>" if omitted else ""
    caption = "works" if len(newest) == 1 else "works, each job in a colour of its own"
    works = f"<span><i {swatch(order[newest[0].job_id])}></i>{caption}</span>"
    return "\n".join([*parts, "</svg>", f'<p class="legend">{works}{_LEGEND}</p>']) + note


def _row(axis: Axis, own: Path, top: int, colour: int) -> list[str]:
    record, middle, until = own.record, top + ROW / 2, own.end
    parts = [
        f'<text class="name" x="4" y="{middle - 1}">{escape(own.job_id)}</text>',
        f'<text class="id" x="4" y="{middle + 10}"><tspan class="{_TONE.get(record.state.value, "run")}">'
        f"{record.state.value}</tspan> {escape(_words(own))}</text>",
        _bar(axis, own.submitted_at, until, middle, 2, 'class="waiting"', f"{own.job_id}: from submission to its end"),
    ]
    strokes = {id(stroke.attempt): stroke for stroke in own.interruptions}
    for number, attempt in enumerate(own.attempts, 1):
        parts += _attempt(axis, attempt, strokes.get(id(attempt)), number, middle, until, colour)
    parts += _last(axis, record, middle, until)
    return parts


def _attempt(
    axis: Axis, attempt: Attempt, stroke: Interruption | None, number: int, middle: float, until: datetime, colour: int
) -> list[str]:
    end = attempt.end or until
    where = f"{attempt.instance_type or '?'} in {attempt.zone or '?'}, {attempt.market or '?'}"
    steps = f", steps {attempt.from_step or 0} to {attempt.last_step}" if attempt.last_step is not None else ""
    title = (
        f"attempt {number} on {attempt.instance_id or '?'} ({where}): {duration((end - attempt.start).total_seconds())}"
    )
    parts = [_bar(axis, attempt.start, end, middle, BAR, fill(colour), f"{title}{steps}")]
    if attempt.training_at is not None and attempt.training_at > attempt.start:
        caption = f"changeover: {duration((attempt.training_at - attempt.start).total_seconds())}"
        parts.append(_bar(axis, attempt.start, attempt.training_at, middle, BAR, 'class="lead"', caption))
    if stroke is not None:
        lost_from = min(max(attempt.lost_from, attempt.start), end)
        least = "at least " if stroke.steps_redone_is_least else ""
        redone = f", {least}{stroke.steps_redone} steps redone" if stroke.steps_redone else ""
        parts.append(_bar(axis, lost_from, end, middle, BAR, 'class="wasted"', f"lost{redone}"))
        x = axis.x(end)
        parts.append(
            f'<path class="{"notice" if stroke.with_notice else "lost"}" d="M{x - 5} {middle - 13}h10l-5 9z">'
            f"<title>{escape(f'interrupted ({stroke.kind}) at {end:%H:%M:%S}{redone}')}</title></path>"
        )
    return parts


def _last(axis: Axis, record: JobRecord, middle: float, until: datetime) -> list[str]:
    if not record.state.final:
        return []
    tone = _TONE[record.state.value]
    return [
        f'<circle class="end {tone}" cx="{axis.x(until)}" cy="{middle}" r="4">'
        f"<title>{record.state.value} {until:%H:%M:%S}</title></circle>"
    ]


def _bar(axis: Axis, start: datetime, end: datetime, middle: float, height: float, look: str, title: str) -> str:
    x, width = axis.x(start), max(axis.x(end) - axis.x(start), 0.6)
    return (
        f'<rect {look} x="{x}" y="{middle - height / 2}" width="{width:.1f}" height="{height}" rx="2">'
        f"<title>{escape(title)}</title></rect>"
    )


def _words(own: Path) -> str:
    attempts, count = len(own.attempts), len(own.interruptions)
    attempts_text = counted(attempts, "attempt")
    return f"{attempts_text}, {counted(count, 'interruption')}" if count else attempts_text
