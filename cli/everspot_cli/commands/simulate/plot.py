"""The picture of one run: available capacity, what the job held, and its progress. Needs matplotlib."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TypeVar

import matplotlib
from everspot_simulator import Mode, Setting, Step, outcome
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from everspot_cli.commands.simulate.inputs import Case, SimulationRequest
from everspot_cli.commands.simulate.runs import simulate_steps
from everspot_cli.errors import CliError

T = TypeVar("T")

# Okabe and Ito's colours, which the colour-blind can tell apart; spot and on-demand differ in lightness as well.
BLUE, SKY, ORANGE, RED, GREEN, PURPLE = "#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#009E73", "#CC79A7"
HELD = {Mode.IDLE: "#DDDDDD", Mode.SPOT: BLUE, Mode.ON_DEMAND: ORANGE}
CHANGING = "black"
LINES = tuple(
    (colour, style) for style in ("-", ":") for colour in (BLUE, ORANGE, GREEN, PURPLE, SKY, "#8C564B", "grey")
)
"""The lines of the policies' progress: seven colours, then the same colours dotted."""

BAR = 0.8
"""The height of a bar as a fraction of its row."""

MOST_NAMES = 12
"""The most rows that are named one by one."""


@dataclass(frozen=True, kw_only=True)
class _Scene:
    """The picture's content: one submission under each of the policies. `end`: hours from submission."""

    case: Case
    start: int
    setting: Setting
    runs: tuple[tuple[str, list[Step]], ...]
    end: float

    @property
    def tick(self) -> float:
        """The length of a tick, in hours."""
        return self.case.capacity.tick_seconds / 3600

    def of_ticks(self, values: Sequence[T]) -> Sequence[T]:
        """Return the part of a trace's values, one per tick, that the picture shows."""
        return values[self.start : self.start + int(self.end / self.tick) + 2]


def draw(request: SimulationRequest, path: Path) -> str:
    """Draw each policy's first run of the first case; the line to print about it.

    Raises:
        CliError: if the file cannot be written.
    """
    case, start = request.cases[0], request.cases[0].starts[0]
    runs = tuple((name, simulate_steps(case, start, request.setting, name)) for name in request.policies)
    seconds = max(run[-1].tick * case.capacity.tick_seconds + run[-1].seconds for _, run in runs)
    end = max(request.setting.deadline, seconds) / 3600
    figure = _figure(_Scene(case=case, start=start, setting=request.setting, runs=runs, end=end))
    kind = path.suffix.lower().removeprefix(".")
    # Without a date, the same run makes the same file.
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


def _figure(scene: _Scene) -> Figure:
    panels = [_pools if len(scene.case.traces) > 1 else _capacity, _allocation, _progress]
    heights = [_height(len(scene.case.traces)), _height(len(scene.runs)), 3.2]
    if scene.case.capacity.prices is not None:
        panels.insert(1, _prices)
        heights.insert(1, 1.2)
    figure = Figure(figsize=(10, sum(heights) + 0.8 * len(panels)), dpi=150, layout="constrained")
    for axes, panel in zip(figure.subplots(len(panels), 1, sharex=True, height_ratios=heights), panels, strict=True):
        axes.axvline(scene.setting.deadline_hours, color="black", linewidth=1.2)
        axes.spines[["top", "right"]].set_visible(False)
        panel(axes, scene)
    axes.set_xlim(0, scene.end * 1.02)
    # Steps of 12, 24, … hours where the axis spans days.
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, steps=[1, 1.2, 2, 2.4, 4, 6, 10]))
    axes.set_xlabel("hours since submission")
    figure.align_ylabels()
    figure.suptitle(_words(scene), fontsize=12)
    return figure


def _height(rows: int) -> float:
    """Return the height of a panel in inches; many rows are thinner."""
    return min(3.0, 0.7 + 0.3 * rows)


def _words(scene: _Scene) -> str:
    setting, case = scene.setting, scene.case
    return (
        f"{Path(_title(case)).name}, submitted at tick {scene.start}\n"
        f"{setting.job_hours:g} h of computing in {setting.deadline_hours:g} h, changeover "
        f"{setting.changeover_hours:g} h, on-demand at {setting.price_ratio:g} times spot"
    )


def _capacity(axes: Axes, scene: _Scene) -> None:
    nodes, available = scene.setting.nodes, scene.of_ticks(scene.case.traces[0].available.tolist())
    axes.stairs(available, [i * scene.tick for i in range(len(available) + 1)], fill=True, color=SKY, label="available")
    most = max(1, nodes, *available)
    if most > 1:
        axes.axhline(nodes, color="black", linestyle=":", linewidth=1.2, label=f"needed: {nodes}")
        _legend_above(axes)
    axes.set_ylim(0, most * 1.1)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.set_ylabel("spot capacity\n(instances)")


def _pools(axes: Axes, scene: _Scene) -> None:
    """A row for each pool, filled where it has enough capacity, and with one policy also what the job held."""
    for pool, up in enumerate(scene.case.capacity.up):
        spells = [(a * scene.tick, n * scene.tick) for a, n in _spells(scene.of_ticks(up))]
        axes.broken_barh(spells, (pool - BAR / 2, BAR), color=SKY, linewidth=0)
    handles = [Patch(color=SKY, label="available")]
    if len(scene.runs) == 1:
        for step in scene.runs[0][1]:
            if step.pool is not None:
                span = (step.tick * scene.tick, step.seconds / 3600)
                axes.broken_barh([span], (step.pool - BAR / 2, BAR), color=BLUE, linewidth=0)
        handles.append(Patch(color=BLUE, label="held"))
    _name_rows(axes, [Path(path).stem for path in scene.case.paths])
    axes.set_ylabel("spot pools")
    _legend_above(axes, handles)


def _spells(up: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the beginnings and lengths, in ticks, of the spells in which a pool is up."""
    edges = [i for i in range(len(up) + 1) if (i > 0 and up[i - 1]) != (i < len(up) and up[i])]
    return [(a, b - a) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _prices(axes: Axes, scene: _Scene) -> None:
    """The prices of spot, all pools in one colour, and of on-demand."""
    capacity = scene.case.capacity
    for pool, prices in enumerate(capacity.prices or ()):
        shown = scene.of_ticks(prices)
        edges = [i * scene.tick for i in range(len(shown) + 1)]
        axes.stairs(shown, edges, baseline=None, color=BLUE, label="" if pool else "spot")
    axes.axhline(capacity.on_demand_prices[0], color=ORANGE, linewidth=1.5, label="on-demand")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.set_ylabel("price\n($/h)")
    _legend_above(axes)


def _allocation(axes: Axes, scene: _Scene) -> None:
    """A bar for each policy: what the job held, black during changeovers."""
    for row, (_, run) in enumerate(scene.runs):
        place = (row - BAR / 2, BAR)
        for mode, colour in HELD.items():
            spans = [(s.tick * scene.tick, s.seconds / 3600) for s in run if s.mode is mode]
            axes.broken_barh(spans, place, color=colour, linewidth=0)
        standing = [(s.tick * scene.tick, (s.seconds - s.progress) / 3600) for s in run if s.mode is not Mode.IDLE]
        axes.broken_barh([span for span in standing if span[1] > 0], place, color=CHANGING, linewidth=0)
    _name_rows(axes, [name for name, _ in scene.runs])
    if len(scene.runs) <= MOST_NAMES:
        for row, (_, run) in enumerate(scene.runs):
            axes.text(1.005, row, _came_to(scene, run), transform=axes.get_yaxis_transform(), va="center", fontsize=8)
    axes.set_ylabel("held")
    handles = [Patch(color=colour, label=mode.value) for mode, colour in HELD.items()]
    _legend_above(axes, [*handles, Patch(color=CHANGING, label="changeover")])


def _came_to(scene: _Scene, run: list[Step]) -> str:
    """Return the cost of a run, and its saving against one on-demand instance without changeovers."""
    figures = outcome(run, scene.setting, scene.case.capacity)
    cost = f"${figures.cost:,.2f}" if scene.case.capacity.prices else f"{figures.cost:.1f} spot h"
    return f"{100 * figures.saving:.0f} % saved\n{cost}"


def _progress(axes: Axes, scene: _Scene) -> None:
    for (name, run), (colour, style) in zip(scene.runs, cycle(LINES)):
        at, done, computed = [0.0], [0.0], 0.0
        for step in run:
            begin, standing = step.tick * scene.tick, (step.seconds - step.progress) / 3600
            at += [begin, begin + standing, begin + step.seconds / 3600]
            done += [computed, computed, computed + step.progress / 3600]
            computed += step.progress / 3600
        axes.plot(at, done, color=colour, linestyle=style, linewidth=2, label=name)
    job, deadline = scene.setting.job_hours, scene.setting.deadline_hours
    latest = deadline - scene.setting.changeover_hours
    safe = "last safe line for on-demand"
    axes.plot([latest - job, latest], [0, job], color=RED, linestyle="--", linewidth=1.5, label=safe)
    axes.axhline(job, color="grey", linestyle=":", linewidth=1.2, label=f"done: {job:g} h")
    axes.set_ylim(0, job * 1.08)
    axes.set_ylabel("progress\n(hours computed)")
    line = Line2D([], [], color="black", linewidth=1.2, label=f"deadline: {deadline:g} h")
    _legend_above(axes, [*axes.get_legend_handles_labels()[0], line])


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows, the first on top; use numbers where there are too many names to read."""
    axes.set_ylim(len(names) - 0.4, -0.6)
    if len(names) <= MOST_NAMES:
        axes.set_yticks(range(len(names)), names)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))


def _legend_above(axes: Axes, handles: Sequence[Artist] | None = None) -> None:
    """Put the legend above the axes, where it hides nothing."""
    legend_handles = axes.get_legend_handles_labels()[0] if handles is None else handles
    axes.legend(handles=legend_handles, loc="lower left", bbox_to_anchor=(0, 0.97), ncols=4, frameon=False, fontsize=9)
