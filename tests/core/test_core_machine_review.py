"""The review of a job's use of its machine: its findings and proposals, as a table and for arbitrary figures."""

from datetime import UTC, datetime

import pytest
from everspot_core.capacity.catalogue import builtin
from everspot_core.jobs.job_parts import Resources
from everspot_core.jobs.machine_review import (
    MOST_CHANGES,
    Bottleneck,
    ChangeKind,
    MachineReview,
    job_use,
    review_machine,
)
from everspot_core.jobs.records import Event, EventKind, JobRecord, JobState, Progress
from everspot_core.jobs.utilization import Utilization
from hypothesis import given
from hypothesis import strategies as st

AT = datetime(2026, 1, 1, tzinfo=UTC)
ON_GPU = {
    "seconds": 3600, "vcpus": 4, "cpu_seconds": 5400, "memory_gib": 6, "gpu_seconds": 3600, "gpu_busy_seconds": 2000,
    "gpu_memory_gib": 9, "gpu_memory_total_gib": 24, "io_wait_seconds": 30,
}  # fmt: skip
ON_PROCESSORS = {"seconds": 600, "vcpus": 4, "cpu_seconds": 2300, "memory_gib": 2}
WAITS = {"loop_seconds": 3500, "data_wait_seconds": 1890, "steps": 7000}


def review(**figures: object) -> MachineReview | None:
    use = Utilization.model_validate(figures)
    kind = "g5.xlarge" if use.gpu_seconds else "m6i.xlarge"
    declared = Resources(vcpus=4, memory_gib=8, gpus=1 if use.gpu_seconds else 0)
    return review_machine(use, declared, builtin().get(kind), builtin(), "us-east-1")


@pytest.mark.parametrize(
    ("figures", "bottleneck", "reason", "changes"),
    [
        (ON_GPU | {"gpu_busy_seconds": 3300}, Bottleneck.NONE, "its GPUs computed for 92% of the time", ()),
        (ON_GPU | WAITS, Bottleneck.DATA, "waited for data for 54%", ("2 more workers", "a batch up to 2 times")),
        (
            ON_GPU | WAITS | {"gpu_busy_seconds": 1332},
            Bottleneck.DATA,
            "computed for 37%",
            ("a step takes 0.23 s instead of 0.5 s", "g4dn.xlarge (resources.vcpus: 2) at $0.526 an hour"),
        ),
        (
            ON_GPU | {"cpu_seconds": 14000},
            Bottleneck.PROCESSORS,
            "3.9 of 4 processors",
            ("prepare the data", "g5.2xlarge (resources.vcpus: 8) with the same GPU at $1.212 an hour instead of"),
        ),
        (ON_GPU | {"io_wait_seconds": 1800}, Bottleneck.DISK, "for a disk for 50%", ("few large files", "workers")),
        (ON_GPU, Bottleneck.BATCH, "9.0 of 24 GiB of GPU memory", ("a batch up to 2 times as large",)),
        (ON_GPU | {"gpu_memory_gib": 3}, Bottleneck.BATCH, "3.0 of 24", ("a batch up to 4 times as large",)),
        (ON_GPU | {"gpu_memory_gib": 22}, Bottleneck.UNEXPLAINED, "computed for 56%", ()),
        (ON_PROCESSORS, Bottleneck.NONE, "its processors were busy for 96%", ()),
        (
            ON_PROCESSORS | {"cpu_seconds": 600},
            Bottleneck.UNEXPLAINED,
            "busy for 25% of the time, 1.0 of 4 processors",
            ("c6i.large (resources.vcpus: 2) at $0.085 an hour instead of m6i.xlarge at $0.192",),
        ),
    ],
)
def test_the_bottleneck_follows_from_the_figures(
    figures: dict[str, float], bottleneck: Bottleneck, reason: str, changes: tuple[str, ...]
) -> None:
    judged = review(**figures)
    assert judged is not None
    assert (judged.bottleneck, len(judged.changes)) == (bottleneck, len(changes))
    assert reason in judged.reason
    assert all(words in str(change) for words, change in zip(changes, judged.changes, strict=True))


@pytest.mark.parametrize(
    ("figures", "kind", "gain", "assumes"),
    [
        (ON_GPU | WAITS, ChangeKind.LOADER_WORKERS, "0.23 s instead of 0.5 s", "no wait is left"),
        (ON_GPU | {"cpu_seconds": 14000}, ChangeKind.MORE_PROCESSORS, "less than 83% of the present time", "not known"),
        (ON_GPU | {"gpu_busy_seconds": 1000}, ChangeKind.SMALLER_TYPE, "less than 1.9 times as long", "not known"),
        (ON_PROCESSORS | {"cpu_seconds": 600}, ChangeKind.SMALLER_TYPE, "for 56% less", "its processors are as fast"),
        (ON_GPU, ChangeKind.LARGER_BATCH, "9.0 of 24 GiB", "memory grows with the batch"),
    ],
)
def test_a_gain_is_told_apart_from_what_it_assumes(
    figures: dict[str, float], kind: ChangeKind, gain: str, assumes: str
) -> None:
    judged = review(**figures)
    assert judged is not None
    (change,) = (change for change in judged.changes if change.kind is kind)
    assert gain in change.gain and assumes in change.assumes


def test_without_a_known_type_no_other_type_is_named() -> None:
    use = Utilization.model_validate(ON_GPU | {"cpu_seconds": 14000, "gpu_busy_seconds": 1000})
    judged = review_machine(use, Resources(gpus=1), None, builtin(), "us-east-1")
    assert judged is not None
    assert [change.kind for change in judged.changes] == [ChangeKind.PREPARE_DATA, ChangeKind.MORE_PROCESSORS]
    assert not any("$" in str(change) for change in judged.changes)


@pytest.mark.parametrize("figures", [{}, ON_GPU | {"seconds": 59}, {"seconds": 3600, "memory_gib": 4}])
def test_too_little_was_measured_to_judge(figures: dict[str, float]) -> None:
    assert review(**figures) is None


@given(
    st.fixed_dictionaries(
        {name: st.none() | st.floats(0, 1e7) for name in Utilization.model_fields if name not in ("seconds", "xids")}
        | {"seconds": st.floats(0, 1e6)}
    )
)
def test_any_figures_have_a_judgement_of_at_most_two_changes(figures: dict[str, float]) -> None:
    judged = review(**figures)
    if judged is None:
        return
    assert len(judged.changes) <= MOST_CHANGES and len(set(judged.changes)) == len(judged.changes)
    use = Utilization.model_validate(figures)
    if use.gpu_share is not None and use.gpu_share >= 0.85:
        assert (judged.bottleneck, judged.changes) == (Bottleneck.NONE, ())


def event(epoch: int, kind: EventKind, seconds: object) -> Event:
    data = {"utilization": {"seconds": seconds}} if seconds is not None else {}
    return Event(job_id="a", epoch=epoch, seq=0, writer="i-1", at=AT, kind=kind, data=data)


@pytest.mark.parametrize(
    ("record_epoch", "in_record", "total"), [(3, 7.0, 107.0), (2, 7.0, 100.0), (3, None, 100.0), (None, None, 100.0)]
)
def test_each_attempt_counts_once(record_epoch: int | None, in_record: float | None, total: float) -> None:
    """Given two ended attempts, one of them with two events, then the record counts only for a third attempt."""
    events = [
        event(1, EventKind.INTERRUPTED, 60.0),
        event(2, EventKind.ERROR, 39.0),
        event(2, EventKind.LOST, 40.0),
        event(2, EventKind.CHECKPOINTED, None),
        event(2, EventKind.FAILED, None),
    ]
    record = None
    if record_epoch is not None:
        use = Utilization(seconds=in_record) if in_record is not None else None
        record = JobRecord(
            job_id="a", state=JobState.RUNNING, epoch=record_epoch, changed_at=AT, progress=Progress(attempt_use=use)
        )
    use = job_use(record, events)
    assert use is not None and use.seconds == total


@pytest.mark.parametrize("nonsense", ["x", [], {"a": 1}, None, {"seconds": {}}, 7])
def test_what_an_event_says_of_it_may_be_anything(nonsense: object) -> None:
    broken = event(1, EventKind.FINISHED, None).model_copy(update={"data": {"utilization": nonsense}})
    use = job_use(None, [broken])
    assert use is None or use.seconds == 0
