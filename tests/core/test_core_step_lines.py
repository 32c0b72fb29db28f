"""The lines that report steps from programs without the trainer library."""

import math

import pytest
from everspot_core.jobs.step_lines import (
    LONGEST_LINE,
    StepReport,
    format_step_lines,
    is_metric_name,
    parse_step_line,
    to_metric_name,
)
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_./-]{0,20}\Z").filter(
    lambda name: name not in ("step", "total_steps", "steps_per_epoch")
)


@pytest.mark.parametrize(
    ("line", "report"),
    [
        ("EVERSPOT step=120 loss=0.3", StepReport(120, metrics={"loss": 0.3})),
        ("EVERSPOT loss=.5 step=3", StepReport(3, metrics={"loss": 0.5})),
        ("2026-01-01 INFO train: EVERSPOT step=1, loss=1e-3,", StepReport(1, metrics={"loss": 0.001})),
        ("EVERSPOT step=1 EVERSPOT step=2", StepReport(2)),
        ("EVERSPOT step=7 total_steps=9 steps_per_epoch=2.5 train/loss=1", StepReport(7, 9, 2.5, {"train/loss": 1.0})),
        ("EVERSPOT step=1 x=1 x=2", StepReport(1, metrics={"x": 2.0})),
        (
            "EVERSPOT step=1 x=inf y=-Infinity z=1e308",
            StepReport(1, metrics={"x": math.inf, "y": -math.inf, "z": 1e308}),
        ),
        ("EVERSPOT step=1 steps_per_epoch=0 total_steps=-1 x=one 2=3 x y= =1 a=1_0 b=0x1", StepReport(1)),
        ("EVERSPOT step=-1", None),
        ("EVERSPOT step=1.5", None),
        ("EVERSPOT step=٣", None),
        ("EVERSPOT step=9999999999999999", None),
        ("EVERSPOT loss=1", None),
        ("EVERSPOTstep=1", None),
        ("everspot: step=1", None),
        ("", None),
    ],
)
def test_a_line_reports_what_it_says_and_no_more(line: str, report: StepReport | None) -> None:
    assert parse_step_line(line) == report


def test_a_figure_that_is_not_a_number_is_read_as_such() -> None:
    report = parse_step_line("EVERSPOT step=1 loss=nan")
    assert report is not None and math.isnan(report.metrics["loss"])


@given(
    st.integers(0, 10**15),
    st.none() | st.integers(0, 10**15),
    st.dictionaries(NAMES, st.floats(allow_nan=False), max_size=9),
)
def test_what_is_written_is_read(step: int, total: int | None, metrics: dict[str, float]) -> None:
    report = StepReport(step, total, metrics=metrics)
    (line,) = format_step_lines(report)
    assert parse_step_line(line) == report


@pytest.mark.parametrize(("count", "length"), [(150, 3), (250, 90), (99, 100)])
def test_many_metrics_are_reported_in_lines_that_can_be_read(count: int, length: int) -> None:
    metrics = {f"m{n}".ljust(length, "x"): n / 7 for n in range(count)}
    lines = format_step_lines(StepReport(10**15, 10**15, 2.5, metrics))
    assert all(len(line) <= LONGEST_LINE for line in lines)
    reports = [report for line in lines if (report := parse_step_line(line)) is not None]
    assert {report.step for report in reports} == {10**15}
    assert (reports[0].total_steps, reports[0].steps_per_epoch) == (10**15, 2.5)
    assert {name: value for report in reports for name, value in report.metrics.items()} == metrics


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("loss", "loss"),
        ("val loss/dataloader_idx_0", "val_loss/dataloader_idx_0"),
        ("Loss/train (avg)", "Loss/train_avg_"),
        ("1st", "_1st"),
        ("", "_"),
        ("größe", "gr_e"),
    ],
)
def test_a_library_s_name_becomes_that_of_a_metric(text: str, name: str) -> None:
    assert to_metric_name(text) == name


@given(st.text())
def test_any_text_becomes_the_name_of_a_metric(text: str) -> None:
    assert is_metric_name(to_metric_name(text))


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    parse_step_line(text)
    parse_step_line(f"EVERSPOT step=1 {text}")
