"""Mixed precision after a failover: when a job uses it."""

import pytest
from everspot_core.jobs.job import JobSpec, Precision, Resources
from everspot_core.jobs.lower_precision import may_lower, trains_mixed
from everspot_core.jobs.records import Progress
from pydantic import ValidationError

FP32 = Progress(step=9, gpu_memory_gib=17.0, mixed=False)


def spec(**fields: object) -> JobSpec:
    resources = Resources(gpus=1, gpu_memory_gib=24)
    return JobSpec(name="j", recipe="r", resources=resources, **{"mixed_on_failover": True, **fields})


@pytest.mark.parametrize(
    ("job", "progress", "gpu_memory_gib", "expected"),
    [
        (spec(), FP32, 16.0, True),
        (spec(mixed_on_failover=False), FP32, 16.0, False),
        (spec(), FP32, 24.0, False),  # all that was asked for is there
        (spec(), FP32, 20.0, False),  # less than asked for, and enough with headroom
        (spec(), FP32, 18.6, True),  # 17 GiB x 1.1 = 18.7
        (spec(), FP32, None, False),  # an unknown type
        (spec(), Progress(), 16.0, False),  # without measurements
        (spec(), FP32.model_copy(update={"mixed": True}), 24.0, True),  # it has changed, and stays so
    ],
)
def test_mixed_precision_is_ordered_where_the_instance_is_too_small_for_fp32(
    job: JobSpec, progress: Progress, gpu_memory_gib: float | None, expected: bool
) -> None:
    assert trains_mixed(job, progress, gpu_memory_gib) is expected


def test_only_auto_may_change() -> None:
    assert may_lower(spec(), False)
    assert not may_lower(spec(), None)
    assert not may_lower(spec(mixed_on_failover=False), False)
    with pytest.raises(ValidationError, match="needs `precision: auto`"):
        spec(precision=Precision.FP32)
