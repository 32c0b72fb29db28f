"""The web UI's page of reviewed changes: each with its effects and the cost of a month before and after it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from everspot_core.cluster.applied_change import AppliedChange
from everspot_core.counting import counted
from everspot_core.estimate.model import CostFigures

from everspot_cli.commands.changes import UNKNOWN, cost_words, did_words
from everspot_cli.tables import money

SHOWN = 200
"""The most changes in the table, the newest."""
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 960, 170, 76, 12, 26  # units of the drawing


@dataclass(frozen=True)
class ChangeLine:
    """A row of the table. `url`: of the pull request, empty if a browser should not open it."""

    at: str
    environment: str
    pull_request: str
    url: str
    author: str
    revision: str
    did: str
    cost: str
    difference: str
    bounds: str


@dataclass(frozen=True)
class CostCourse:
    """The expected cost of a month of one environment after each change, as a drawing. `points`: left to right, x and
    y; `labels`: x, y and words; `words`: the same for screen readers."""

    environment: str
    points: tuple[tuple[float, float], ...]
    labels: tuple[tuple[float, float, str], ...]
    words: str

    @property
    def line(self) -> str:
        """The points as a path of steps: a cost holds until the next change."""
        steps = [f"M{self.points[0][0]} {self.points[0][1]}"]
        steps += [f"H{x}V{y}" for x, y in self.points[1:]]
        return "".join([*steps, f"H{WIDTH}"])


@dataclass(frozen=True)
class ChangesPanel:
    """The page; changes newest first."""

    summary: str
    lines: tuple[ChangeLine, ...]
    left_out: int
    courses: tuple[CostCourse, ...]


def panel(changes: Sequence[AppliedChange]) -> ChangesPanel:
    """Return the page for the applied changes, given oldest first."""
    newest = changes[::-1]
    environments = dict.fromkeys(change.environment for change in changes)
    drawn = (_course(name, [c for c in changes if c.environment == name]) for name in environments)
    return ChangesPanel(
        summary=_summary(changes),
        lines=tuple(map(_line, newest[:SHOWN])),
        left_out=max(0, len(newest) - SHOWN),
        courses=tuple(course for course in drawn if course is not None),
    )


def _summary(changes: Sequence[AppliedChange]) -> str:
    failed = sum(not change.whole for change in changes)
    summary = f"{counted(len(changes) - failed, 'change')} applied"
    return f"{summary}, {counted(failed, 'update')} failed." if failed else f"{summary}."


def _line(change: AppliedChange) -> ChangeLine:
    pull, before, after = change.pull_request, _side(change, "before"), _side(change, "after")
    differs = before is not None and after is not None
    return ChangeLine(
        at=f"{change.at:%Y-%m-%d %H:%M}",
        environment=change.environment,
        pull_request=f"#{pull.number} {pull.title}" if pull is not None else "—",
        url=pull.url if pull is not None and pull.url.startswith(("https://", "http://")) else "",
        author=(pull.author if pull is not None else "") or "—",
        revision=change.revision[:12] or "—",
        did=did_words(change),
        cost=cost_words(change),
        difference=_format_difference(after.total.expected - before.total.expected) if differs else UNKNOWN,  # type: ignore[union-attr]
        bounds=f"{money(after.total.low)} to {money(after.total.high)}" if after is not None else UNKNOWN,
    )


def _side(change: AppliedChange, name: str) -> CostFigures | None:
    """Return a side's figures. None if they are unknown, as after a failed update."""
    if name == "after" and not change.whole:
        return None
    side: CostFigures | None = getattr(change.estimate, name) if change.estimate is not None else None
    return None if side is None or side.nothing_known else side


def _format_difference(usd: float) -> str:
    return money(usd) if usd < 0 else f"+{money(usd)}"


def _course(environment: str, changes: Sequence[AppliedChange]) -> CostCourse | None:
    """Return the drawing of an environment with at least two known costs. Unknown costs are left out."""
    known_costs = [(c.at, after.total.expected) for c in changes if (after := _side(c, "after")) is not None]
    if len(known_costs) < 2:
        return None
    first, last, most = known_costs[0][0], known_costs[-1][0], max(usd for _, usd in known_costs) or 1.0
    points = tuple((_x(at, first, last), _y(usd, most)) for at, usd in known_costs)
    labels = (
        (4.0, _y(most, most) + 4, money(most)),
        (4.0, _y(0, most), money(0)),
        (float(LEFT), float(HEIGHT - 6), f"{first:%Y-%m-%d}"),
        (float(WIDTH - 80), float(HEIGHT - 6), f"{last:%Y-%m-%d}"),
    )
    words = f"From {money(known_costs[0][1])} to {money(known_costs[-1][1])} a month, at most {money(most)}"
    return CostCourse(environment, points, labels, f"{words}, over {counted(len(known_costs), 'change')}.")


def _x(at: datetime, first: datetime, last: datetime) -> float:
    share = (at - first) / (last - first) if last > first else 0.0
    return round(LEFT + (WIDTH - LEFT - 80) * share, 1)


def _y(usd: float, most: float) -> float:
    return round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * usd / most, 1)
