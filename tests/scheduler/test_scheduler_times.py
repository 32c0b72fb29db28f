"""Jobs with dependencies, start times or hours, and recurring jobs."""

from datetime import timedelta

import pytest
from everspot_core.jobs.job import JobSpec, JobSubmission, PrecedingJob, Series
from everspot_core.jobs.records import EventKind, JobRecord, JobState, Progress, Reason, Request
from everspot_core.jobs.series import next_id
from everspot_scheduler.recurring import RecurringJobs
from everspot_store import Store
from scheduler_helpers import Cluster


def submit(cluster: Cluster, job: str, after: tuple[str, ...] = (), start_in: float | None = None, **spec) -> None:
    now = cluster.clock.now()
    whole = JobSpec.model_validate({"name": job, "recipe": "image_classification", **spec})
    cluster.store.submit(
        JobSubmission(
            job_id=job,
            spec=whole,
            submitted_at=now,
            start_at=now + timedelta(seconds=start_in) if start_in is not None else None,
            after=[PrecedingJob(name=name, job_id=name) for name in after],
            series=Series(id=job) if whole.every is not None else None,
        )
    )


def wait_reason(cluster: Cluster, job: str) -> str:
    return cluster.store.notes.waiting.read().jobs[job].why


def archiving(cluster: Cluster, after: timedelta) -> None:
    limits = cluster.manifest.limits.model_copy(update={"archive_after": after})
    cluster.declare(limits=limits)
    cluster.schedulers = [cluster.scheduler()]


def cancel(cluster: Cluster, job: str) -> None:
    cluster.store.cancels.create(job, Request(at=cluster.clock.now(), by="ann"))


def test_a_job_begins_when_all_that_it_comes_after_have_succeeded(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.agent("i-2")
    submit(cluster, "last", after=("one", "two"))
    submit(cluster, "one")
    submit(cluster, "two", after=("one",))
    cluster.run(3)
    assert [cluster.state(job) for job in ("one", "two", "last")] == ["RUNNING", "PENDING", "PENDING"]
    assert wait_reason(cluster, "last") == "after"
    assert cluster.store.notes.waiting.read().jobs["last"].words == "it comes after one, two"
    cluster.run(20)
    assert [cluster.state(job) for job in ("one", "two", "last")] == ["SUCCEEDED"] * 3
    began = {job: cluster.events_of_kind(job, EventKind.ASSIGNED)[0].at for job in ("one", "two", "last")}
    assert began["one"] < began["two"] < began["last"]


def test_a_chain_fails_where_its_first_job_was_cancelled(cluster: Cluster) -> None:
    submit(cluster, "one")
    submit(cluster, "two", after=("one",))
    submit(cluster, "three", after=("two",))
    cancel(cluster, "one")
    cluster.run(5)
    assert [cluster.state(job) for job in ("one", "two", "three")] == ["CANCELLED", "FAILED", "FAILED"]
    details = [cluster.store.records.get(job).value.detail for job in ("two", "three")]
    assert details == ["it was to come after one, which was cancelled", "it was to come after two, which failed"]
    (event,) = cluster.events_of_kind("two", EventKind.FAILED)
    assert event.data["reason"] == "after"


@pytest.mark.parametrize(("reason", "state"), [(Reason.FINISHED, "RUNNING"), (Reason.CANCEL, "FAILED")])
def test_a_job_that_is_in_the_archive_counts_as_it_ended(cluster: Cluster, reason, state) -> None:
    cluster.length = 100
    submit(cluster, "one")
    record = JobRecord(
        job_id="one",
        state=JobState.SUCCEEDED if reason is Reason.FINISHED else JobState.CANCELLED,
        last_reason=reason,
        changed_at=cluster.clock.now(),
    )
    cluster.store.records.create("one", record)
    cluster.store.archive.move(cluster.store.jobs.get("one").value, record, cluster.clock.now())
    cluster.agent("i-1")
    submit(cluster, "two", after=("one",))
    submit(cluster, "three", after=("never",))
    cluster.run(4)
    assert cluster.state("two") == state
    assert cluster.store.records.get("three").value.detail == "it was to come after never, which is not known"


def test_a_job_begins_at_its_time_and_not_before(cluster: Cluster) -> None:
    cluster.agent("i-1")
    submit(cluster, "later", start_in=30)
    cluster.run(28)
    assert cluster.state("later") == "PENDING"
    assert wait_reason(cluster, "later") == "not-yet"
    cluster.run(4)
    assert cluster.state("later") in ("ASSIGNED", "RUNNING")


def test_a_job_keeps_to_its_hours_and_goes_on_in_the_next(cluster: Cluster) -> None:
    """The clock starts at midnight. The window closes at one o'clock and opens again a day later."""
    cluster.length = 10_000
    cluster.agent("i-1")
    submit(cluster, "night", window="00:00-01:00")
    cluster.run(20)
    assert cluster.state("night") == "RUNNING"
    cluster.clock.advance(timedelta(minutes=59))
    cluster.run(30)
    record = cluster.store.records.get("night").value
    assert record.state is JobState.RUNNING
    cluster.run(30)
    record = cluster.store.records.get("night").value
    assert (record.state, record.last_reason) == (JobState.PENDING, Reason.WINDOW)
    assert (record.preemptions, record.errors) == (0, 0)
    assert cluster.store.notes.waiting.read().jobs["night"].words == (
        "it runs from 00:00-01:00 only; that is at 2026-01-02 00:00 UTC"
    )
    step = record.progress.step
    cluster.clock.advance(timedelta(hours=22, minutes=59))
    cluster.run(60)
    record = cluster.store.records.get("night").value
    assert record.state is JobState.RUNNING
    assert record.progress.step > step


def runs(cluster: Cluster) -> dict[str, str]:
    names = {*cluster.store.jobs.names(), *cluster.store.archive.keys()}
    archived = cluster.store.archive.scan()
    return {job: archived[job].record.state.value if job in archived else cluster.state(job) for job in sorted(names)}


def test_a_cancel_that_comes_after_the_next_run_was_submitted_ends_the_series(cluster: Cluster) -> None:
    cluster.agent("i-1")
    submit(cluster, "nightly", every="1h")
    for _ in range(60):
        if "nightly-2" in cluster.store.jobs.names():
            break
        cluster.run(1)
    assert cluster.state("nightly") == "SUCCEEDED"
    cancel(cluster, "nightly")  # whoever wrote it had read a record of a running job
    cluster.run(2)
    cluster.clock.advance(timedelta(hours=3))
    cluster.run(20)
    assert runs(cluster) == {"nightly": "SUCCEEDED", "nightly-2": "CANCELLED"}


def test_a_series_runs_at_its_times_until_it_is_cancelled(cluster: Cluster) -> None:
    """Two schedulers; runs leave the tables long before the next one is due."""
    archiving(cluster, timedelta(minutes=5))
    cluster.schedulers = [cluster.scheduler("s1"), cluster.scheduler("s2")]
    cluster.agent("i-1")
    submit(cluster, "nightly", every="1h")
    cluster.run(20)
    assert runs(cluster) == {"nightly": "SUCCEEDED", "nightly-2": "PENDING"}
    assert wait_reason(cluster, "nightly-2") == "not-yet"
    cluster.clock.advance(timedelta(minutes=59, seconds=30))
    cluster.run(40)
    assert runs(cluster) == {"nightly": "SUCCEEDED", "nightly-2": "SUCCEEDED", "nightly-3": "PENDING"}
    starts = [cluster.store.jobs.get(job).value.start_at for job in ("nightly-2", "nightly-3")]
    assert starts[1] - starts[0] == timedelta(hours=1)
    cluster.clock.advance(timedelta(minutes=20))
    cluster.run(3)
    assert set(cluster.store.archive.keys()) == {"nightly", "nightly-2"}
    cancel(cluster, "nightly-3")
    cluster.run(5)
    cluster.clock.advance(timedelta(hours=5))
    cluster.run(5)
    assert runs(cluster) == {"nightly": "SUCCEEDED", "nightly-2": "SUCCEEDED", "nightly-3": "CANCELLED"}
    (event,) = cluster.events_of_kind("nightly-2", EventKind.SUBMITTED) or [
        e for e in cluster.store.archive.get("nightly-2").events if e.kind is EventKind.SUBMITTED
    ]
    assert event.data["after"] == "nightly"


def test_a_run_that_fails_does_not_end_its_series_and_a_poor_one_skips_the_next(cluster: Cluster) -> None:
    submit(cluster, "nightly", every="1h", skip_if="accuracy gain < 0.1")
    end(cluster, "nightly", {"accuracy": 0.5})
    cluster.run(1)
    began = cluster.store.jobs.get("nightly-2").value.start_at
    cluster.clock.advance(timedelta(hours=1))
    end(cluster, "nightly-2", {"accuracy": 0.55})
    cluster.run(1)
    third = cluster.store.jobs.get("nightly-3").value
    assert third.start_at - began == timedelta(hours=2), "one is skipped"
    cluster.clock.advance(timedelta(hours=2))
    end(cluster, "nightly-3", {}, JobState.FAILED)
    cluster.run(1)
    assert cluster.store.jobs.get("nightly-4").value.start_at - third.start_at == timedelta(hours=1)


def end(cluster: Cluster, job: str, metrics: dict[str, float], state: JobState = JobState.SUCCEEDED) -> None:
    reason = Reason.FINISHED if state is JobState.SUCCEEDED else Reason.ERROR
    now = cluster.clock.now()
    record = JobRecord(
        job_id=job, state=state, epoch=1, last_owner="i-0", last_reason=reason, changed_at=now, held_seconds=1,
        progress=Progress(metrics=metrics),
    )  # fmt: skip
    cluster.store.records.create(job, record)


def test_a_series_whose_forerunner_failed_ends_instead_of_failing_for_ever(cluster: Cluster) -> None:
    submit(cluster, "nightly", after=("never",), every="1h")
    cluster.run(20)
    assert runs(cluster) == {"nightly": "FAILED"}


def test_a_run_that_an_agent_with_a_slow_clock_ended_does_not_end_its_series(cluster: Cluster) -> None:
    submit(cluster, "nightly", every="1h")
    end(cluster, "nightly", {})
    cluster.run(1)
    assert cluster.store.jobs.get("nightly-2").value.start_at > cluster.clock.now()
    end(cluster, "nightly-2", {})  # the run of an attempt, by a clock that is behind its planned start
    cluster.run(1)
    assert "nightly-3" in cluster.store.jobs.names()


def test_a_scheduler_that_dies_or_comes_late_makes_no_run_twice_and_none_too_few(cluster: Cluster, monkeypatch) -> None:
    """The store fails at the very write; another scheduler has been there before; the run has left the tables."""
    submit(cluster, "nightly", every="1h")
    end(cluster, "nightly", {})
    observation = cluster.schedulers[0].observe.observer.look()
    with monkeypatch.context() as broken:
        broken.setattr(cluster.store.jobs, "create", fail)
        with pytest.raises(ConnectionError):
            RecurringJobs(cluster.store, "s1").go_on(observation)
    for scheduler in ("s2", "s3"):
        RecurringJobs(cluster.store, scheduler).go_on(observation)
    assert sorted(cluster.store.jobs.names()) == ["nightly", "nightly-2"]
    following = cluster.store.jobs.get("nightly-2").value
    end(cluster, "nightly-2", {})
    cluster.store.archive.move(following, cluster.store.records.get("nightly-2").value, cluster.clock.now())
    RecurringJobs(cluster.store, "s4").go_on(observation)
    assert sorted(cluster.store.jobs.names()) == ["nightly"], "what has run and is archived is not run again"
    assert next_id(following.series) == "nightly-3"


def fail(*_: object) -> None:
    raise ConnectionError


def test_what_waits_for_its_time_has_no_heartbeat_read_for_it(cluster: Cluster) -> None:
    """A series has a job that waits all the time: that must not cost a read of each instance in each tick."""
    cluster.agent("i-1")
    submit(cluster, "later", start_in=3600)
    cluster.run(2)
    read = count_reads(cluster.store)
    cluster.run(4)
    assert read.count("instances/i-1.json") <= 1


def count_reads(store: Store) -> list[str]:
    read_keys: list[str] = []
    get = store.control.get

    def counted(key: str):
        read_keys.append(key)
        return get(key)

    store.control.get = counted
    return read_keys
