"""A job's curves: bounded size for any length, without losing a spike, from the steps that counted in the end."""

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from everspot_core.jobs.curves import PARTS, CurveBuilder, Point, thin
from everspot_core.jobs.utilization import Utilization, UtilizationWindow
from hypothesis import given
from hypothesis import strategies as st

AT = datetime(2026, 1, 1, tzinfo=UTC)


def line(step: Any, **metrics: Any) -> bytes:
    return json.dumps({"step": step, "at": AT.isoformat(), "metrics": metrics}).encode() + b"\n"


def window(minutes: float, **use: Any) -> UtilizationWindow:
    return UtilizationWindow(at=AT + timedelta(minutes=minutes), utilization=Utilization(seconds=60, **use))


def stored(*windows: UtilizationWindow) -> bytes:
    return b"".join(window.to_json() + b"\n" for window in windows)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=400), st.integers(1, 20), st.sampled_from((1, 7)))
def test_fewer_points_keep_the_ends_and_the_extremes(values: list[float], parts: int, stride: int) -> None:
    points = [Point(x * stride, y) for x, y in enumerate(values)]
    fewer = thin(points, parts)
    assert len(fewer) <= max(4 * parts, 0) and set(fewer) <= set(points)
    assert list(fewer) == sorted(fewer) and (fewer[0], fewer[-1]) == (points[0], points[-1])
    assert (min(p.y for p in fewer), max(p.y for p in fewer)) == (min(values), max(values))


@pytest.mark.parametrize("count", [1, 10, 100_000])
def test_a_curve_of_any_length_is_readable_and_shows_its_spike(count: int) -> None:
    builder = CurveBuilder()
    for begin in range(0, count, 5_000):  # as the trainer writes them
        steps = range(begin, min(count, begin + 5_000))
        builder.add_metrics(1, b"".join(line(n, loss=1000.0 if n == count // 2 else 1 / (n + 1)) for n in steps))
    (curve,) = builder.build().metrics
    assert len(curve.points) == count if count <= 10 else PARTS < len(curve.points) <= 4 * PARTS
    assert curve.points[-1].x == count - 1 and max(p.y for p in curve.points) == 1000


def test_steps_that_are_done_again_count_once_and_by_the_later_attempt() -> None:
    builder = CurveBuilder()
    builder.add_metrics(1, b"".join(line(n, loss=5.0, rate=0.1) for n in range(0, 100, 10)))
    builder.add_metrics(2, line(41, loss=3.0) + line(51, loss=2.0))
    loss, rate = builder.build().metrics
    assert [p for p in loss.points if p.x >= 40] == [(40, 5.0), (41, 3.0), (51, 2.0)]
    assert rate.points[-1] == (40, 0.1), "what was reported of steps that were lost is no part of the job"


def test_losses_come_first_and_what_is_not_finite_is_counted() -> None:
    builder = CurveBuilder()
    builder.add_metrics(
        1, line(1, accuracy=0.1, val_loss=None, **{"eval/loss": 2.0}) + line(2, accuracy=0.2, val_loss=1)
    )
    curves = {curve.name: curve for curve in builder.build().metrics}
    assert list(curves) == ["eval/loss", "val_loss", "accuracy"]
    assert (curves["val_loss"].points, curves["val_loss"].not_finite) == (((2, 1.0),), 1)


@given(st.binary(max_size=60) | st.builds(lambda v: json.dumps(v).encode(), st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4),
    lambda inner: st.dictionaries(st.sampled_from(("step", "metrics", "loss", "x" * 200)), inner, max_size=3),
)))  # fmt: skip
def test_what_a_program_wrote_wrongly_is_left_out(data: bytes) -> None:
    builder = CurveBuilder()
    builder.add_metrics(1, data + b"\n" + line(10**14, loss=1.5))
    builder.add_utilization(data)
    loss = next(curve for curve in builder.build().metrics if curve.name == "loss")
    assert loss.points[-1] == (10**14, 1.5) and all(math.isfinite(p.y) for p in loss.points)


def test_a_program_with_very_many_metrics_has_some() -> None:
    builder = CurveBuilder()
    builder.add_metrics(1, line(1, **{f"m{n}": n for n in range(5_000)}))
    assert len(builder.build().metrics) == 100


def test_the_newest_figures_of_the_record_end_the_curves_and_are_not_kept() -> None:
    builder = CurveBuilder()
    builder.add_metrics(1, line(1, loss=3.0))
    now = builder.build((9, {"loss": 2.0, "accuracy": 0.5}), window(5, vcpus=2, cpu_seconds=60))
    assert [curve.points[-1] for curve in now.metrics] == [(9, 2.0), (9, 0.5)]
    assert now.shares[0].points == ((60.0, 0.5),)
    builder.add_metrics(1, line(4, loss=2.5))
    assert [curve.points for curve in builder.build().metrics] == [((1, 3.0), (4, 2.5))]
    assert builder.build((4, {"loss": 9.0})).metrics[0].points[-1] == (4, 2.5)


def test_use_of_the_machine_by_time_has_only_what_was_measured() -> None:
    builder = CurveBuilder()
    builder.add_utilization(
        stored(
            window(1, vcpus=2, cpu_seconds=30, memory_gib=1.5),
            window(2, vcpus=2, cpu_seconds=120, memory_gib=2, loop_seconds=50, data_wait_seconds=10),
        )
        + b"{cut off"
    )
    curves = builder.build()
    assert {curve.name: curve.points for curve in curves.shares} == {
        "processors were busy": ((60, 0.25), (120, 1.0)),
        "loop waited for data": ((120, 0.2),),
    }
    assert [(curve.name, curve.points[-1]) for curve in curves.memory] == [("memory", (120, 2.0))]
    assert curves.began_at == AT
    assert builder.build(scale=10).began_at == AT - timedelta(minutes=9), (
        "a window lasts ten times as long in the market"
    )


def test_a_gpu_adds_its_own_curves() -> None:
    builder = CurveBuilder()
    gpu = {"gpu_seconds": 60, "gpu_busy_seconds": 24, "gpu_memory_gib": 9, "gpu_memory_total_gib": 24}
    builder.add_utilization(stored(window(1, vcpus=4, cpu_seconds=90, memory_gib=6, io_wait_seconds=0.6, **gpu)))
    curves = builder.build()
    names = ["GPUs computed", "processors were busy", "a thread waited for a disk"]
    assert [(curve.name, curve.points[0].y) for curve in curves.shares] == list(
        zip(names, (0.4, 0.375, 0.01), strict=True)
    )
    assert [curve.name for curve in curves.memory] == ["GPU memory", "memory"]


def test_a_hundred_thousand_windows_stay_few_and_keep_the_most_memory() -> None:
    builder = CurveBuilder()
    for n in range(100_000):
        use = Utilization(seconds=60, vcpus=2, cpu_seconds=60, memory_gib=7 if n == 31_000 else 1)
        builder.add_window(UtilizationWindow(at=AT + timedelta(minutes=n), utilization=use))
    curves = builder.build()
    (share,), (memory,) = curves.shares, curves.memory
    assert len(share.points) == PARTS and all(p.y == pytest.approx(0.5) for p in share.points)
    assert max(p.y for p in memory.points) == 7
