"""The picture of one run: what capacity there was, what was held, and how far the job came. Needs matplotlib."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import matplotlib
from everspot_core.simulate import Mode, Setting, Step
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from everspot_cli.commands.simulate_inputs import Asked, Case
from everspot_cli.commands.simulate_runs import stretches
from everspot_cli.errors import CliError

# Okabe and Ito's colours, which differ for every kind of sight; spot and on-demand differ in lightness as well.
BLUE, SKY, ORANGE, RED, GREEN, PURPLE = "#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#009E73", "#CC79A7"
HELD = {Mode.IDLE: "#DDDDDD", Mode.SPOT: BLUE, Mode.ON_DEMAND: ORANGE}
CHANGING = "black"
LINES = ((BLUE, "-"), (ORANGE, "-"), (GREEN, "-"), (PURPLE, "-"), (BLUE, "-."), (ORANGE, "-."), (GREEN, "-."))
"""Of the policies' progress."""

BAR = 0.8
"""Height of a bar, of its row."""

MOST_NAMES = 12
"""Rows that are still named one by one."""

Run = tuple[str, Sequence[Step]]


def draw(asked: Asked, path: Path) -> str:
    """Draw the first run of the first case, of each policy; says what the picture shows.

    Raises:
        CliError: if the file cannot be written.
    """
    case, start = asked.cases[0], asked.cases[0].starts[0]
    drawn = [(name, stretches(case, start, asked.setting, name)) for name in asked.policies]
    figure = _figure(case, start, asked.setting, drawn)
    kind = path.suffix.lower().removeprefix(".")
    # The same run makes the same file.
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context({"svg.hashsalt": "everspot"}):
            figure.savefig(path, format=kind, metadata=undated)
    except OSError as error:
        raise CliError(f"--plot: {path} cannot be written: {error.strerror or error}") from None
    return f"The picture, {path}: {_title(case)} from tick {start}."


def _title(case: Case) -> str:
    return case.paths[0] if len(case.paths) == 1 else f"{len(case.paths)} pools"


def _figure(case: Case, start: int, setting: Setting, drawn: Sequence[Run]) -> Figure:
    end = max(setting.deadline, *(_finished(case, run) for _, run in drawn)) / 3600
    pools, policies = len(case.traces), len(drawn)
    heights = [1.3 if pools == 1 else min(3.0, 0.5 + 0.25 * pools), 0.5 + 0.35 * policies, 3.2]
    figure = Figure(figsize=(10, sum(heights) + 2.4), dpi=150, layout="constrained")
    capacity, held, progress = figure.subplots(3, 1, sharex=True, height_ratios=heights)
    _capacity(capacity, case, start, setting, end, drawn)
    _held(held, case, drawn)
    _progress(progress, case, setting, drawn)
    for axes in (capacity, held):
        axes.axvline(setting.deadline_hours, color="black", linewidth=1.2)
    for axes in (capacity, held, progress):
        axes.spines[["top", "right"]].set_visible(False)
    progress.set_xlim(0, end * 1.02)
    # Half days, where it is about days.
    progress.xaxis.set_major_locator(MaxNLocator(nbins=12, steps=[1, 1.2, 2, 2.4, 4, 6, 10]))
    progress.set_xlabel("hours since submission")
    title = f"{Path(_title(case)).name}, submitted at tick {start}"
    about = (
        f"{setting.job_hours:g} h of computing in {setting.deadline_hours:g} h, changeover "
        f"{setting.changeover_hours:g} h, on-demand at {setting.price_ratio:g} times spot"
    )
    figure.align_ylabels()
    figure.suptitle(f"{title}\n{about}", fontsize=12)
    return figure


def _finished(case: Case, run: Sequence[Step]) -> float:
    return run[-1].tick * case.capacity.tick_seconds + run[-1].seconds


def _capacity(axes: Axes, case: Case, start: int, setting: Setting, end: float, drawn: Sequence[Run]) -> None:
    tick = case.capacity.tick_seconds / 3600
    ticks = int(end / tick) + 2
    if len(case.traces) > 1:
        _pools(axes, case, start, setting, ticks, drawn)
        return
    there = case.traces[0].available[start : start + ticks]
    edges = [i * tick for i in range(len(there) + 1)]
    axes.stairs(there, edges, fill=True, color=SKY, label="available")
    if setting.nodes > 1 or (there.size and there.max() > 1):
        axes.axhline(setting.nodes, color="black", linestyle=":", linewidth=1.2, label=f"needed: {setting.nodes}")
        _legend_above(axes)
    axes.set_ylim(0, max(1, setting.nodes, *there.tolist()) * 1.1)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.set_ylabel("spot capacity\n(instances)")


def _pools(axes: Axes, case: Case, start: int, setting: Setting, ticks: int, drawn: Sequence[Run]) -> None:
    """A row for each pool, filled where it has enough; what was held stands out if there is one policy alone."""
    hours = case.capacity.tick_seconds / 3600
    for pool, trace in enumerate(case.traces):
        spells = _spells(trace.up(setting.nodes)[start : start + ticks].tolist())
        axes.broken_barh([(a * hours, n * hours) for a, n in spells], (pool - BAR / 2, BAR), color=SKY)
    handles = [Patch(color=SKY, label="available")]
    if len(drawn) == 1:
        for step in drawn[0][1]:
            if step.pool is not None:
                span = (step.tick * hours, step.seconds / 3600)
                axes.broken_barh([span], (step.pool - BAR / 2, BAR), color=BLUE, linewidth=0)
        handles.append(Patch(color=BLUE, label="held"))
    _name_rows(axes, [Path(path).stem for path in case.paths])
    axes.set_ylabel("spot pools")
    _legend_above(axes, handles)


def _spells(up: Sequence[bool]) -> list[tuple[int, int]]:
    """Beginnings and lengths of the times when it is up."""
    edges = [i for i in range(len(up) + 1) if (i > 0 and up[i - 1]) != (i < len(up) and up[i])]
    return [(a, b - a) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _held(axes: Axes, case: Case, drawn: Sequence[Run]) -> None:
    """A bar for each policy: what was held, black while it was changed over to."""
    tick = case.capacity.tick_seconds / 3600
    for row, (_, run) in enumerate(drawn):
        place = (row - BAR / 2, BAR)
        for mode, colour in HELD.items():
            spans = [(s.tick * tick, s.seconds / 3600) for s in run if s.mode is mode]
            axes.broken_barh(spans, place, color=colour, linewidth=0)
        changing = [(s.tick * tick, (s.seconds - s.progress) / 3600) for s in run if s.mode is not Mode.IDLE]
        axes.broken_barh([c for c in changing if c[1] > 0], place, color=CHANGING, linewidth=0)
    _name_rows(axes, [name for name, _ in drawn])
    axes.set_ylabel("held")
    handles = [Patch(color=colour, label=mode.value) for mode, colour in HELD.items()]
    _legend_above(axes, [*handles, Patch(color=CHANGING, label="changeover")])


def _progress(axes: Axes, case: Case, setting: Setting, drawn: Sequence[Run]) -> None:
    tick = case.capacity.tick_seconds / 3600
    for (name, run), (colour, style) in zip(drawn, cycle(LINES)):
        at, done, computed = [0.0], [0.0], 0.0
        for step in run:
            begin, standing = step.tick * tick, (step.seconds - step.progress) / 3600
            at += [begin, begin + standing, begin + step.seconds / 3600]
            done += [computed, computed, computed + step.progress / 3600]
            computed += step.progress / 3600
        axes.plot(at, done, color=colour, linestyle=style, linewidth=2, label=name)
    job, deadline = setting.job_hours, setting.deadline_hours
    latest = deadline - setting.changeover_hours
    safe = "last safe line for on-demand"
    axes.plot([latest - job, latest], [0, job], color=RED, linestyle="--", linewidth=1.5, label=safe)
    axes.axhline(job, color="grey", linestyle=":", linewidth=1.2, label=f"done: {job:g} h")
    axes.set_ylim(0, job * 1.08)
    axes.set_ylabel("progress\n(hours computed)")
    axes.axvline(deadline, color="black", linewidth=1.2, label=f"deadline: {deadline:g} h")
    _legend_above(axes)


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    """The first on top; numbers only where there are too many names to be read."""
    axes.set_ylim(len(names) - 0.4, -0.6)
    if len(names) <= MOST_NAMES:
        axes.set_yticks(range(len(names)), names)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))


def _legend_above(axes: Axes, handles: Sequence[Artist] | None = None) -> None:
    """Over the axes, where it hides nothing."""
    given = axes.get_legend_handles_labels()[0] if handles is None else handles
    axes.legend(handles=given, loc="lower left", bbox_to_anchor=(0, 0.97), ncols=4, frameon=False, fontsize=9)
