"""A job's use of its machine: live figures, and the review of a job."""

from typing import Any

from everspot_cli.ui.panels.jobs import list_reasons
from everspot_core.jobs.records import EventKind, JobState
from everspot_core.jobs.utilization import Utilization

from tests.cli.conftest import World

RECENT: dict[str, Any] = {
    "seconds": 60, "vcpus": 4, "cpu_seconds": 90, "memory_gib": 6, "gpu_seconds": 60, "gpu_busy_seconds": 24,
    "gpu_memory_gib": 9, "gpu_memory_total_gib": 24, "gpu_joules": 9600, "gpu_celsius": 64, "io_wait_seconds": 0.6,
    "read_bytes": 60 << 20, "written_bytes": 0, "received_bytes": 120 << 20, "sent_bytes": 6000,
}  # fmt: skip
TRAINER = {"loop_seconds": 3500, "data_wait_seconds": 1890, "steps": 7000}
ATTEMPT = {
    name: value * 60 if name.endswith(("seconds", "bytes", "joules")) else value for name, value in RECENT.items()
}


def run_on_gpu(world: World, **errors: Any) -> None:
    world.submit("a", resources={"gpus": 1, "vcpus": 4, "memory_gib": 8})
    world.assign("a", "i-0a1b2c3d4e5f60718", 60)
    world.start("a", 120)
    record = world.record("a")
    assert record is not None
    progress = record.progress.model_copy(
        update={
            "step": 120,
            "recent_use": Utilization.model_validate(RECENT | errors),
            "attempt_use": Utilization.model_validate(ATTEMPT | TRAINER | errors),
        }
    )
    world.save(record.model_copy(update={"progress": progress, "changed_at": world.to(150)}))


def test_top_gives_one_reading_as_json(world: World) -> None:
    run_on_gpu(world)
    document = world.run("top", "a", "--json").json
    assert (document["job_id"], document["state"], document["step"]) == ("a", "RUNNING", 120)
    assert document["owner"] == "i-0a1b2c3d4e5f60718"
    recent, attempt = document["recent"], document["attempt"]
    assert (recent["gpu_share"], recent["busy_vcpus"], recent["gpu_watts"]) == (0.4, 1.5, 160)
    assert (recent["data_wait_share"], attempt["data_wait_share"], attempt["step_seconds"]) == (None, 0.54, 0.5)


def test_top_shows_a_job_that_does_not_run_once(world: World) -> None:
    world.submit("b")
    assert "waits for an instance" in world.run("top", "b").out
    assert world.run("top", "b", "--json").json["recent"] is None
    assert world.run("top", "none").code != 0
    run_on_gpu(world, ecc_errors=2, xids=(48, 79))
    world.emit("a", EventKind.FINISHED, step=120, metrics={}, utilization=ATTEMPT | TRAINER)
    record = world.record("a")
    assert record is not None
    world.save(record.model_copy(update={"state": JobState.SUCCEEDED, "owner": None, "last_owner": record.owner}))
    shown = world.run("top", "a").out
    figures = ("40%", "9.0 of 24 GiB", "1.5 of 4 busy", "160 W", "64 °C", "54%", "1.05 MB/s", "Xid 79", "2 uncorrected")
    for words in figures:
        assert words in shown, shown


def test_a_job_shows_how_the_machine_was_used_and_what_would_help(world: World) -> None:
    run_on_gpu(world)
    shown = " ".join(world.run("job", "a").out.split())
    assert "how the machine was used" in shown
    assert "the loop waited for data for 54% of it, while 1.5 of 4 processors were busy" in shown
    assert "more workers of the loader" in shown and "g4dn.xlarge (resources.vcpus: 2)" in shown
    machine = world.run("job", "a", "--json").json["machine"]
    assert (machine["bottleneck"], len(machine["changes"]), machine["gpu_share"]) == ("data", 2, 0.4)


def test_a_job_below_its_limit_is_marked_everywhere(world: World) -> None:
    run_on_gpu(world)
    record = world.record("a")
    assert record is not None
    low = record.progress.model_copy(update={"low_gpu_share": 0.12})
    world.save(record.model_copy(update={"progress": low}))
    limits = {"share": 0.12, "limit": 20, "span_seconds": 1800, "then": "warn"}
    world.emit("a", EventKind.UNDERUSED, **limits)
    assert "RUNNING, GPUs computed for 12% of the time" in world.run("jobs").out
    (row,) = world.run("jobs", "--json").json
    assert row["low_gpu_share"] == 0.12
    shown = " ".join(world.run("job", "a").out.split())
    assert (
        "warning GPUs computed for 12% of the time" in shown and "underused" in shown and "span seconds 30m00s" in shown
    )
    assert list_reasons(row | {"deadline_at": None}, world.clock.now()) == ["GPUs computed for 12% of the time"]


def test_the_events_of_a_job_do_not_repeat_what_was_measured(world: World) -> None:
    run_on_gpu(world)
    world.emit("a", EventKind.FINISHED, step=120, metrics={}, utilization=ATTEMPT)
    assert "cpu_seconds" not in world.run("job", "a", "--events").out


def test_a_job_that_was_not_measured_has_no_such_section(world: World) -> None:
    world.submit("a")
    assert "how the machine" not in world.run("job", "a").out
    assert world.run("job", "a", "--json").json["machine"] is None
