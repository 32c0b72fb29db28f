"""The limit on low GPU use: its setting in the job file, and its evaluation."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from everspot_core.jobs.job import JobSpec, JobSubmission, LimitAction
from everspot_core.jobs.utilization import Utilization
from everspot_core.jobs.utilization_limit import GpuUseWatch
from everspot_core.validation.model_errors import translate_errors
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

JOB: dict[str, Any] = {"name": "train", "recipe": "image-classification", "resources": {"gpus": 1}}
shares = st.lists(st.floats(0, 1), min_size=1, max_size=60)


def sample(share: float | None, seconds: float = 10, gpus: int = 2) -> Utilization:
    busy = share * gpus * seconds if share is not None else None
    return Utilization(
        seconds=seconds, gpu_seconds=gpus * seconds if share is not None else None, gpu_busy_seconds=busy
    )


def watch(*samples: float | None, below: float = 0.2, span: float = 60) -> float | None:
    watcher = GpuUseWatch(below, timedelta(seconds=span))
    for share in samples:
        watcher.add(sample(share))
    return watcher.low_share


@pytest.mark.parametrize(
    ("samples", "low"),
    [
        ([0.1] * 5, None),  # not measured for long enough
        ([0.1] * 6, 0.1),
        ([1.0] * 30 + [0.1] * 6, 0.1),  # only the last minute counts
        ([0.1] * 30 + [0.1] * 5 + [0.9], None),  # a busy sample in it
        ([0.1] * 30 + [0.9] + [0.1] * 6, 0.1),  # and none any more
        ([0.0] * 6, 0.0),
        ([0.2] * 6, None),  # the limit itself is kept
        ([None] * 60, None),
        ([0.1] * 3 + [None] * 60 + [0.1] * 3, 0.1),
    ],
)
def test_the_mean_of_the_last_span_is_judged(samples: list[float | None], low: float | None) -> None:
    assert watch(*samples) == (pytest.approx(low) if low is not None else None)


@given(shares, st.floats(0.01, 1))
def test_it_is_the_mean_of_the_newest_samples_that_fill_the_span(samples: list[float], below: float) -> None:
    low = watch(*samples, below=below)
    mean = sum(samples[-6:]) / 6
    if len(samples) < 6:
        assert low is None
    elif abs(mean - below) > 1e-6:
        assert (low is not None) == (mean < below)
        assert low is None or low == pytest.approx(mean, abs=1e-6)


def test_a_job_file_says_what_happens() -> None:
    spec = JobSpec.model_validate(JOB | {"limits": {"gpu_utilization_below": "20%", "for": "45m", "then": "end"}})
    assert spec.limits is not None
    assert (spec.limits.gpu_utilization_below, spec.limits.span, spec.limits.then) == (
        20.0, timedelta(minutes=45), LimitAction.END,
    )  # fmt: skip
    assert spec.model_dump(mode="json")["limits"] == {"gpu_utilization_below": "20%", "for": 2700.0, "then": "end"}
    stored = JobSubmission(job_id="a", spec=spec, submitted_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert JobSubmission.read(stored.to_json()).spec == spec
    default = JobSpec.model_validate(JOB | {"limits": {"gpu_utilization_below": "12.5 %"}}).limits
    assert default is not None
    assert (default.gpu_utilization_below, default.span, default.then) == (
        12.5, timedelta(minutes=30), LimitAction.WARN,
    )  # fmt: skip


def test_one_error_names_every_bad_field() -> None:
    limits = {"gpu_utilization_below": 0.2, "for": "5s", "then": "stop", "memory": 3}
    with pytest.raises(ValidationError) as refusal:
        JobSpec.model_validate(JOB | {"limits": limits, "priority": "high"})
    problems = {problem.path: problem.reason for problem in translate_errors(refusal.value, JobSpec)}
    assert set(problems) == {
        "limits.gpu_utilization_below", "limits.for", "limits.then", "limits.memory", "priority",
    }  # fmt: skip
    assert "percentage such as 20%" in problems["limits.gpu_utilization_below"]
    assert "from 1m to 1d" in problems["limits.for"]


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"resources": {"gpus": 0}, "limits": {"gpu_utilization_below": "20%"}}, "limits.gpu_utilization_below"),
        ({"limits": {"then": "end"}}, "limits.gpu_utilization_below"),
        ({"limits": {"gpu_utilization_below": "0%"}}, "limits.gpu_utilization_below"),
        ({"limits": {"gpu_utilization_below": "101%"}}, "limits.gpu_utilization_below"),
        ({"limits": {"gpu_utilization_below": "20%", "for": 30}}, "limits.for"),
        ({"limits": {"gpu_utilization_below": "20%", "for": "2d"}}, "limits.for"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(job: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        JobSpec.model_validate(JOB | job)
    assert [problem.path for problem in translate_errors(refusal.value, JobSpec)] == [field]
