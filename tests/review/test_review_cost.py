"""The cost of a change, from event logs of the real engine."""

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from everspot_clouds.estimating import estimated
from everspot_core.estimate.model import CostFigures
from everspot_review.engine import Ended
from everspot_review.events import read
from everspot_review.previewing import Revisions, preview

LOGS = Path(__file__).parent / "logs"


def figures(side: CostFigures | None) -> tuple[float, ...]:
    assert side is not None
    assert side.teams == ({"ml-platform": side.total} if side.parts else {})
    return tuple(side.total.model_dump().values())


@pytest.mark.parametrize(
    ("log", "before", "after"),
    [
        # Of c6i.large, m6i.large and m7i.large: one on-demand, four on Spot; t3.small; two endpoints in three zones;
        # $1.12 of the scheduler's requests to an idle store
        ("aws-first", (0, 0, 0, 0), (294.82, 305.77, 591.78, 414.24)),
        ("gcp-template", (132.28, 132.28, 336.77, 132.28), (132.28, 132.28, 336.77, 132.28)),
        ("gcp-destroy", (122.28, 122.28, 326.77, 122.28), (0, 0, 0, 0)),
    ],
)
def test_a_preview_is_priced_by_its_event_log_alone(
    log: str, before: tuple[float, ...], after: tuple[float, ...]
) -> None:
    events = read((LOGS / f"{log}.jsonl").read_text().splitlines())
    cost = estimated(events.before(), events.after())
    assert (figures(cost.before), figures(cost.after)) == (before, after)


def test_a_cluster_of_an_earlier_release_has_elastic_capacity_of_limits_that_are_not_known() -> None:
    events = read((LOGS / "gcp-template.jsonl").read_text().splitlines())
    cost = estimated(events.before(), events.after())
    assert "everspot-local-gcp-elastic: its limits are not known: it was declared by an earlier release" in cost.unknown


@pytest.mark.parametrize(("code", "has_figures"), [(0, True), (1, False)])
def test_a_report_has_what_the_change_costs_and_a_failed_preview_has_no_figure(code: int, has_figures: bool) -> None:
    recorded = LOGS / "aws-first.jsonl"

    def written(_: str, log: Path, limit: timedelta) -> Ended:
        log.write_text(recorded.read_text())
        return Ended(code=code, pid=1, output="no more")

    engine = SimpleNamespace(preview=written, over_budget=lambda *_: [], state=lambda _: {}, packs=(), project=LOGS)
    cost = preview(engine, "local", Revisions()).estimate  # type: ignore[arg-type]
    assert cost is not None and (cost.before is not None, cost.after is not None) == (has_figures, has_figures)
