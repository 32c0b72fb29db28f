"""The curves of a job: its metrics by step, and what it used of its machine by time, each chart as SVG and in words."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from everspot_core.counting import counted
from everspot_core.jobs.curves import Curve, JobCurves, Point

from everspot_cli.tables import duration

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 480, 170, 58, 8, 10, 24  # units of the drawing
SHOWN = 12
"""The most metrics that are drawn. The names of the others are listed."""
_LOGARITHMIC = 100.0
"""From this ratio of highest to middle value on, all of them positive, a metric is drawn on a logarithmic axis."""


@dataclass(frozen=True)
class ChartLine:
    """A line of a chart. `path`: SVG; `dots`: marked points; `words`: its last, lowest and highest value."""

    name: str
    path: str
    dots: tuple[tuple[float, float], ...]
    words: str


@dataclass(frozen=True)
class Chart:
    """One chart. `labels`: x, y, anchor and text of the axes; `words`: the same for screen readers."""

    key: str
    title: str
    lines: tuple[ChartLine, ...]
    labels: tuple[tuple[float, float, str, str], ...]
    note: str
    words: str


@dataclass(frozen=True)
class CurvesPanel:
    """The section of a job's page. `no_metrics` and `no_use`: why there are no charts; empty if there are."""

    metrics: tuple[Chart, ...]
    undrawn: tuple[str, ...]
    use: tuple[Chart, ...]
    no_metrics: str
    no_use: str


def panel(curves: JobCurves, *, started: bool, ended: bool) -> CurvesPanel:
    """Return the charts. `started`: an instance has worked on the job; `ended`: the job is over."""
    drawable = [curve for curve in curves.metrics if curve.points or curve.not_finite]
    use = []
    if curves.shares:
        use.append(_chart("use", "Use of the machine", curves.shares, _percent, (0.0, 1.0), _since))
    if curves.memory:
        most = max(point.y for curve in curves.memory for point in curve.points)
        use.append(_chart("memory", "Memory", curves.memory, _gib, (0.0, most or 1.0), _since))
    return CurvesPanel(
        metrics=tuple(_metric(number, curve) for number, curve in enumerate(drawable[:SHOWN])),
        undrawn=tuple(curve.name for curve in drawable[SHOWN:]),
        use=tuple(use),
        no_metrics="" if drawable else _why_no_metrics(started=started, ended=ended),
        no_use="" if use else _why_no_use(started=started, ended=ended),
    )


def _why_no_metrics(*, started: bool, ended: bool) -> str:
    if not started:
        return "No metric yet: the job has not started." if not ended else "No metric: the job never started."
    how = "the trainer library, TensorBoard files, or lines such as EVERSPOT step=120 loss=0.3"
    return f"The job {'reported' if ended else 'has reported'} no metric by step. It can by {how}."


def _why_no_use(*, started: bool, ended: bool) -> str:
    if not started:
        return "Nothing was measured: the job never started." if ended else "Nothing is measured before the job starts."
    if ended:
        return (
            "Nothing was measured: the job was over within half a minute, or its agent is older than the measurements."
        )
    return "Nothing is measured yet: the first figures come within a minute of training."


def _metric(number: int, curve: Curve) -> Chart:
    values = [point.y for point in curve.points]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    logarithmic = bool(values) and low > 0 and high > _LOGARITHMIC * sorted(values)[len(values) // 2]
    bounds = (low, high) if high > low else (low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2)
    note = " on a logarithmic axis" if logarithmic else ""
    not_finite = f"{counted(curve.not_finite, 'value')} infinite or not a number" if curve.not_finite else ""
    return _chart(
        f"metric-{number}",
        curve.name,
        (curve,),
        _short,
        bounds,
        _step,
        note=note,
        not_finite=not_finite,
        log=logarithmic,
    )


def _chart(
    key: str,
    title: str,
    curves: Sequence[Curve],
    y_text: Callable[[float], str],
    bounds: tuple[float, float],
    x_text: Callable[[float], str],
    *,
    note: str = "",
    not_finite: str = "",
    log: bool = False,
) -> Chart:
    points = [point for curve in curves for point in curve.points]
    first, last = (min(p.x for p in points), max(p.x for p in points)) if points else (0.0, 0.0)
    scale_y: Callable[[float], float] = math.log if log else float
    low, high = scale_y(bounds[0]), scale_y(bounds[1])

    def place(point: Point) -> tuple[float, float]:
        across = (point.x - first) / (last - first) if last > first else 0.5
        # Halves, because the difference of two large numbers may be infinite; that of two tiny halves may be 0.
        half_span = high / 2 - low / 2
        up = (scale_y(point.y) / 2 - low / 2) / half_span if half_span > 0 else 0.5
        return (
            round(LEFT + (WIDTH - LEFT - RIGHT) * across, 1),
            round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * up, 1),
        )

    lines = tuple(_line(curve, [place(point) for point in curve.points], y_text) for curve in curves)
    labels = [
        (LEFT - 6.0, TOP + 4.0, "end", y_text(bounds[1])),
        (LEFT - 6.0, HEIGHT - BOTTOM + 0.0, "end", y_text(bounds[0])),
    ]
    if points:
        labels.append((float(LEFT), HEIGHT - 6.0, "start", x_text(first)))
    if last > first:
        labels.append((float(WIDTH - RIGHT), HEIGHT - 6.0, "end", x_text(last)))
    extent = f"{x_text(first)} to {x_text(last)}" if last > first else x_text(first) if points else ""
    parts = [*(f"{line.name}: {line.words}" for line in lines if line.words), *([not_finite] if not_finite else [])]
    return Chart(
        key=key,
        title=title,
        lines=lines,
        labels=tuple(labels),
        note=", ".join(filter(None, (note.strip(), not_finite))),
        words=f"{title}{note}{f', {extent}' if extent else ''}: {'; '.join(parts)}.",
    )


def _line(curve: Curve, places: Sequence[tuple[float, float]], y_text: Callable[[float], str]) -> ChartLine:
    path = "".join(f"{'L' if number else 'M'}{x:g} {y:g}" for number, (x, y) in enumerate(places))
    if not curve.points:
        return ChartLine(curve.name, "", (), "")
    values = [point.y for point in curve.points]
    extremes = f", from {y_text(min(values))} to {y_text(max(values))}" if len(values) > 1 else ""
    dots = tuple(places) if len(places) <= 12 else (places[-1],)
    return ChartLine(curve.name, path if len(places) > 1 else "", dots, f"{y_text(values[-1])} at last{extremes}")


def _percent(share: float) -> str:
    return f"{share:.0%}"


def _gib(value: float) -> str:
    return f"{value:.3g} GiB"


def _short(value: float) -> str:
    return f"{value:.4g}"


def _step(value: float) -> str:
    return f"step {value:.0f}"


def _since(seconds: float) -> str:
    return f"after {duration(seconds)}"
