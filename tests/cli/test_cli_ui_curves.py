"""The charts on a job's page, their text alternatives, and the message without charts."""

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
from everspot_cli.ui.panels.curves import BOTTOM, HEIGHT, LEFT, RIGHT, SHOWN, TOP, WIDTH, panel
from everspot_core.jobs.curves import Curve, JobCurves, Point
from everspot_core.jobs.utilization import Utilization, UtilizationWindow
from hypothesis import example, given
from hypothesis import strategies as st
from ui_helpers import CLOCK, Served, served

from tests.cli.conftest import World

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A job in its second attempt that reports a loss by step and was measured, one that reports nothing, one that
    waits, and one that has reported once."""
    world = World(tmp_path_factory.mktemp("ui"))
    for name in ("curved", "silent", "growing"):
        world.submit(name, 0)
        world.assign(name, "i-base", 10)
        world.start(name, 20)
    world.submit("waits", 30)
    world.store.metrics.append("growing", 1, 0, b'{"step": 5, "metrics": {"reward": 1.25}}\n')
    for epoch, steps in ((1, range(3000)), (2, range(2000, 100_000))):
        lines = [json.dumps({"step": n, "metrics": {"loss": 9 / (n + 1), EVIL: 1.0}}) + "\n" for n in steps]
        world.store.metrics.append("curved", epoch, 0, "".join(lines).encode())
    for minute in range(1, 4):
        use = Utilization(seconds=60, vcpus=2, cpu_seconds=60, memory_gib=minute, loop_seconds=60, data_wait_seconds=15)
        at = world.clock.now() + timedelta(minutes=minute)
        line = UtilizationWindow(at=at, utilization=use).to_json() + b"\n"
        world.store.utilization.append("curved", 1, minute, line)
    record = world.record("curved")
    assert record is not None
    progress = record.progress.model_copy(update={"step": 123_456, "metrics": {"loss": 0.5}})
    world.save(record.model_copy(update={"progress": progress}))
    return world


@pytest.fixture(scope="module")
def page(cluster: World) -> Iterator[Served]:
    with served(cluster.url, env={"EVERSPOT_CLOCK": CLOCK}) as page:
        yield page


def test_a_job_has_a_chart_of_each_metric_and_of_its_machine(page: Served) -> None:
    text = page.until("/jobs/curved", lambda text: 'id="charts"' in text)
    words = "loss on a logarithmic axis, step 0 to step 123456: loss: 0.5 at last, from 9e-05 to 9."
    assert f'aria-label="{words}"' in text
    assert "loop waited for data: </li>" not in text and "25% at last" in text and "50% at last" in text
    assert "3 GiB at last, from 1 GiB to 3 GiB" in text
    assert EVIL not in text and "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert len(text) < 200_000, "a page is sent every two seconds"


def test_a_job_without_curves_shows_the_reason(page: Served) -> None:
    text = page.until("/jobs/silent", lambda text: 'id="no-metrics"' in text)
    assert "EVERSPOT step=120 loss=0.3" in text and "the first figures come within a minute" in text
    text = page.until("/jobs/waits", lambda text: 'id="no-metrics"' in text)
    assert "the job has not started" in text and "<figure" not in text


def test_new_pieces_are_added_to_what_was_read(cluster: World, page: Served) -> None:
    page.until("/jobs/growing", lambda text: "reward, step 5: reward: 1.25 at last." in text)
    cluster.store.metrics.append("growing", 1, 1, b'{"step": 8, "metrics": {"reward": 2.5}}\n')
    page.until("/jobs/growing", lambda text: "reward, step 5 to step 8: reward: 2.5 at last" in text)


def test_only_so_many_metrics_are_drawn_and_the_rest_is_named() -> None:
    curves = JobCurves(metrics=tuple(Curve(f"m{n:02}", (Point(1, n),)) for n in range(SHOWN + 2)))
    shown = panel(curves, started=True, ended=True)
    assert (len(shown.metrics), shown.undrawn) == (SHOWN, (f"m{SHOWN}", f"m{SHOWN + 1}"))


@pytest.mark.parametrize(
    ("started", "ended", "words"),
    [
        (False, False, ("has not started", "before the job starts")),
        (False, True, ("never started", "never started")),
        (True, False, ("has reported no metric", "within a minute")),
        (True, True, ("The job reported no metric", "was over within half a minute")),
    ],
)
def test_every_empty_state_has_its_words(started: bool, ended: bool, words: tuple[str, str]) -> None:
    shown = panel(JobCurves(), started=started, ended=ended)
    assert words[0] in shown.no_metrics and words[1] in shown.no_use and not (shown.metrics or shown.use)


def test_a_metric_that_was_never_finite_says_so() -> None:
    (chart,) = panel(JobCurves(metrics=(Curve("loss", (), 3),)), started=True, ended=False).metrics
    assert chart.note == chart.words.partition(": ")[2].strip("; .") == "3 values infinite or not a number"


@given(st.lists(st.tuples(st.integers(0, 10**15), st.floats(-1e300, 1e300)), min_size=1, max_size=30))
@example([(0, 0.0), (1, 5e-324)])
def test_every_point_lies_within_the_drawing(values: list[tuple[int, float]]) -> None:
    points = tuple(Point(x, y) for x, y in sorted(dict(values).items()))
    (chart,) = panel(JobCurves(metrics=(Curve("loss", points),)), started=True, ended=False).metrics
    (line,) = chart.lines
    for x, y in line.dots:
        assert 0 <= x <= 480 and 0 <= y <= 170
    assert "nan" not in line.path and "inf" not in line.path


def test_the_drawing_has_the_size_that_the_template_declares(page: Served) -> None:
    text = page.until("/jobs/curved", lambda text: 'id="charts"' in text)
    assert f'viewBox="0 0 {WIDTH} {HEIGHT}"' in text
    for y in (TOP, HEIGHT - BOTTOM):
        assert f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>' in text
