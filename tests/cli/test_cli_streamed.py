"""The report says how many bytes of streamed datasets were not fetched twice; a dataset says where it lies."""

from pathlib import Path
from typing import Any

from everspot_core.jobs import lease
from everspot_core.jobs.shard_traffic import ShardTraffic
from everspot_scheduler.event_writer import History

from tests.cli.conftest import World


def run_streaming(world: World, job: str, *traffic: dict[str, int]) -> None:
    """A job with one attempt after the other; the last one is still running."""
    world.submit(job, datasets=["web"], stream=["web"])
    for number, bytes_of_attempt in enumerate(traffic):
        begin = 60 + 600 * number
        world.assign(job, "i-0a1b2c3d4e5f60718", begin)
        world.start(job, begin + 60)
        record = world.record(job)
        assert record is not None
        progress = record.progress.model_copy(
            update={"step": 100 * number + 100, "shard_traffic": ShardTraffic.model_validate(bytes_of_attempt)}
        )
        world.save(record.model_copy(update={"progress": progress, "changed_at": world.to(begin + 120)}))
        if number + 1 < len(traffic):
            expired = world.save(lease.expire(world.record(job), world.to(begin + 300)))
            History(world.store).lost(expired, expired.epoch, "expired")


def test_the_report_says_how_many_bytes_were_not_fetched_twice(world: World) -> None:
    """Two jobs with one cache: what the first has fetched, the second finds."""
    run_streaming(
        world,
        "a",
        {"fetched_bytes": 4_000_000_001, "cached_bytes": 1},
        {"fetched_bytes": 2, "cached_bytes": 7_999_999_998},
    )
    run_streaming(world, "b", {"fetched_bytes": 0, "cached_bytes": 4_000_000_001})
    world.submit("c")
    report: dict[str, Any] = world.run("--json", "report").json
    assert report["streamed"] == {"jobs": 2, "fetched_bytes": 4_000_000_003, "cached_bytes": 12_000_000_000}
    rows = {job["job_id"]: job["streamed"] for job in report["jobs"]}
    assert rows == {
        "a": {"fetched_bytes": 4_000_000_003, "cached_bytes": 7_999_999_999},
        "b": {"fetched_bytes": 0, "cached_bytes": 4_000_000_001},
        "c": None,
    }
    assert "12 GB not fetched twice; 4 GB fetched" in " ".join(world.run("report").out.split())
    assert "not fetched twice" not in world.run("report", "c").out
    page = world.root / "report.html"
    assert world.run("report", "--html", str(page)).code == 0
    assert "12 GB" in page.read_text() and "streamed and not fetched twice" in page.read_text()


def test_a_dataset_says_in_which_region_it_lies(world: World, tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "a.txt").write_text("a")
    put = world.run("--json", "data", "put", str(tmp_path / "web"), "web").json
    assert (put["region"], put["bytes"]) == (world.store.manifest().region, 1)
    (listed,) = world.run("--json", "data").json
    assert (listed["region"], listed["bytes"]) == (put["region"], 1)
    assert put["region"] in world.run("data").out
