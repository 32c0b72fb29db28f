"""The curves of a job: its metrics by step, and its utilization of the machine by time.

Curves are built from the pieces of a job's streams in the order in which they are stored, and stay small however long
the job is. The lowest and the highest value of each part of a curve survive, so that a spike never disappears.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pydantic import ValidationError

from everspot_core.jobs.reported_values import parse_count, parse_number
from everspot_core.jobs.step_lines import LONGEST_NAME, MOST_METRICS
from everspot_core.jobs.utilization import Utilization, UtilizationWindow, downsample

PARTS = 240
"""The parts of equal width of a long curve, each with at most four points: first, lowest, highest and last."""
_MOST_POINTS = 8 * PARTS
_MOST_WINDOWS = 4 * PARTS
_LARGEST = 1e300
"""The largest value of a metric that is drawn: differences of two must be finite."""


class Point(NamedTuple):
    """A point of a curve. `x`: a step, or the seconds since the curves' `began_at`."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Curve:
    """The values of one figure over steps or time.

    Attributes:
        name: of the metric or of the figure.
        points: in order of `x`.
        not_finite: the number of infinite or NaN values, which are left out of the points.
    """

    name: str
    points: tuple[Point, ...]
    not_finite: int = 0


@dataclass(frozen=True, slots=True)
class JobCurves:
    """The curves of a job.

    Attributes:
        metrics: by step; losses first, then by name.
        shares: fractions from 0 to 1 of GPUs, processors and waits, by time. Only what was measured.
        memory: GiB of memory and GPU memory, by time. Only what was measured.
        began_at: the beginning of the first measured window, market time; None if nothing was measured.
    """

    metrics: tuple[Curve, ...] = ()
    shares: tuple[Curve, ...] = ()
    memory: tuple[Curve, ...] = ()
    began_at: datetime | None = None


_SHARES: tuple[tuple[str, Callable[[Utilization], float | None]], ...] = (
    ("GPUs computed", lambda use: use.gpu_share),
    ("processors were busy", lambda use: use.cpu_share),
    ("loop waited for data", lambda use: use.data_wait_share),
    ("a thread waited for a disk", lambda use: use.io_wait_share),
)
_MEMORY: tuple[tuple[str, Callable[[Utilization], float | None]], ...] = (
    ("GPU memory", lambda use: use.gpu_memory_gib),
    ("memory", lambda use: use.memory_gib),
)


@dataclass
class _Series:
    points: list[Point] = field(default_factory=list)
    not_finite: int = 0


class MetricSample(NamedTuple):
    """The metrics of one step. `metrics`: NaN for values that are not finite. `at`: market time; None if unknown."""

    step: int
    metrics: dict[str, float]
    at: datetime | None


class CurveBuilder:
    """Collects the pieces of a job's streams. Its size is bounded by the number of metrics, not by the job's length."""

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}
        self._windows: list[UtilizationWindow] = []
        self._epoch = 0

    def add_metrics(self, epoch: int, data: bytes) -> None:
        """Add lines of the stream `metrics` of one attempt. Lines that cannot be read are left out.

        An attempt that resumes from a checkpoint replaces the points of the steps that it repeats.
        """
        for line in data.splitlines():
            sample = _parse_metrics(line)
            if sample is not None:
                self.add_sample(epoch, sample.step, sample.metrics)

    def add_sample(self, epoch: int, step: int, metrics: dict[str, float]) -> None:
        """Add the metrics of one step. `metrics`: NaN for values that are not finite."""
        if epoch > self._epoch:
            self._epoch = epoch
            for series in self._series.values():
                series.points = [point for point in series.points if point.x < step]
        for name, value in metrics.items():
            if name not in self._series and len(self._series) >= MOST_METRICS:
                continue
            series = self._series.setdefault(name, _Series())
            if not math.isfinite(value):
                series.not_finite += 1
            elif not series.points or step > series.points[-1].x:
                series.points.append(Point(step, value))
            elif step == series.points[-1].x:
                series.points[-1] = Point(step, value)
            if len(series.points) > _MOST_POINTS:
                series.points = list(thin(series.points))

    def add_utilization(self, data: bytes) -> None:
        """Add lines of the stream `utilization`. Lines that cannot be read are left out."""
        for line in data.splitlines():
            try:
                self.add_window(UtilizationWindow.read(line))
            except ValidationError:
                continue

    def add_window(self, window: UtilizationWindow) -> None:
        """Add one window. A window that does not end after the last one is left out."""
        if self._windows and window.at <= self._windows[-1].at:
            return
        self._windows.append(window)
        if len(self._windows) > _MOST_WINDOWS:
            self._windows = downsample(self._windows, _MOST_WINDOWS // 2)

    def build(
        self,
        sample: tuple[int, dict[str, float]] | None = None,
        recent: UtilizationWindow | None = None,
        scale: float = 1,
    ) -> JobCurves:
        """Return the curves of everything added so far and of the newest values in the job's record.

        Args:
            sample: the newest step and its metrics, which may not be stored yet.
            recent: the utilization of the last minute, which may not be stored yet.
            scale: market seconds in a real one. Windows end at a market time and last real seconds.
        """
        windows = self._windows
        newest_windows = [recent] if recent is not None and (not windows or recent.at > windows[-1].at) else []
        windows = downsample([*windows, *newest_windows], PARTS)
        metrics = self._metric_curves(sample)
        if not windows:
            return JobCurves(metrics=metrics)
        first = windows[0]
        length = first.utilization.seconds * scale
        offsets = [length + (window.at - first.at).total_seconds() for window in windows]
        uses = [window.utilization for window in windows]
        return JobCurves(
            metrics=metrics,
            shares=_figures(_SHARES, offsets, uses),
            memory=_figures(_MEMORY, offsets, uses),
            began_at=first.at - timedelta(seconds=length),
        )

    def _metric_curves(self, sample: tuple[int, dict[str, float]] | None) -> tuple[Curve, ...]:
        points = {name: thin(series.points) for name, series in self._series.items()}
        step, newest_metrics = sample or (0, {})
        for name, value in newest_metrics.items():
            own = points.get(name, ())
            if math.isfinite(value) and (name in points or len(points) < MOST_METRICS):
                points[name] = (*own, Point(step, value)) if not own or step > own[-1].x else own
        not_finite = {name: series.not_finite for name, series in self._series.items()}
        names = sorted(points, key=lambda name: ("loss" not in name.lower(), name))
        return tuple(Curve(name, points[name], not_finite.get(name, 0)) for name in names)


def thin(points: Sequence[Point], parts: int = PARTS) -> tuple[Point, ...]:
    """Return at most `4 * parts` of the points: the first, lowest, highest and last of each part of the width.

    Args:
        points: in order of `x`.
        parts: the number of parts of equal width; at least 1.
    """
    if len(points) <= 4 * parts:
        return tuple(points)
    begin, width = points[0].x, points[-1].x - points[0].x
    groups: dict[int, list[Point]] = {}
    for point in points:
        part = min(parts - 1, int((point.x - begin) / width * parts)) if width > 0 else 0
        groups.setdefault(part, []).append(point)
    extremes = (
        {group[0], min(group, key=lambda p: p.y), max(group, key=lambda p: p.y), group[-1]} for group in groups.values()
    )
    return tuple(point for group in extremes for point in sorted(group))


def _figures(
    figures: Iterable[tuple[str, Callable[[Utilization], float | None]]],
    offsets: Sequence[float],
    uses: Sequence[Utilization],
) -> tuple[Curve, ...]:
    curves = (
        Curve(name, tuple(Point(x, y) for x, use in zip(offsets, uses, strict=True) if (y := figure(use)) is not None))
        for name, figure in figures
    )
    return tuple(curve for curve in curves if curve.points)


def read_samples(lines: bytes) -> Iterator[MetricSample]:
    """Yield the samples in lines of the stream `metrics`, in their order. Lines that cannot be read are left out."""
    for line in lines.splitlines():
        sample = _parse_metrics(line)
        if sample is not None:
            yield sample


def read_metric(lines: bytes, name: str) -> Iterator[tuple[int, float]]:
    """Yield the steps and values of one metric in lines of the stream `metrics`, in their order: NaN for values that
    are not finite. Lines that cannot be read are left out."""
    for sample in read_samples(lines):
        if name in sample.metrics:
            yield sample.step, sample.metrics[name]


def _parse_metrics(line: bytes) -> MetricSample | None:
    try:
        sample: Any = json.loads(line)
    except (ValueError, RecursionError):  # such as a line that was cut off when its writer died
        return None
    if not isinstance(sample, dict) or not isinstance(sample.get("metrics"), dict):
        return None
    step = parse_count(sample.get("step"))
    if step is None:
        return None
    metrics = {
        name: math.nan if (number := parse_number(value, -_LARGEST, _LARGEST)) is None else number
        for name, value in sample["metrics"].items()
        if 0 < len(name) <= LONGEST_NAME and (value is None or isinstance(value, int | float))
    }
    return MetricSample(step, metrics, _parse_time(sample.get("at")))


def _parse_time(value: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return at if at is not None and at.tzinfo is not None else None
