"""A dataset that is larger than the cache streams through it; a killed job goes on at the very sample."""

import io
import re
import signal
import tarfile
from pathlib import Path

import program_forks
import pytest
from agent_helpers import FAST, Cluster, eventually
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import EventKind, JobState
from everspot_store import Dataset, job_transfer
from everspot_train.shards import ShardOrder, write_index

PROGRAM = Path(__file__).parent / "programs" / "streaming"
SHARDS, SAMPLES, PADDING = 8, 12, 20_000
LONG = 300.0
STEPS = 150  # of 4 samples on each rank: 24 make an epoch of one rank


@pytest.fixture
def launcher() -> str:
    return program_forks.launcher()


def write_shards(folder: Path) -> Path:
    folder.mkdir()
    for shard in range(SHARDS):
        with tarfile.open(folder / f"part-{shard:03d}.tar", "w") as archive:
            for number in range(SAMPLES):
                for ending, content in (("cls", str(number).encode()), ("bin", bytes([shard]) * PADDING)):
                    member = tarfile.TarInfo(f"s{shard:03d}-{number:03d}.{ending}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
    assert set(write_index(folder).values()) == {SAMPLES}
    return folder


def submit(cluster: Cluster, dataset: Dataset, tmp_path: Path, ranks: int) -> None:
    shard = next(file.size for file in dataset.files if file.path.endswith(".tar"))
    env = {
        "TRACE": str(tmp_path / "trace-"), "FIT_STEPS": str(STEPS), "FIT_FAST": str(tmp_path / "fast"),
        "CACHE_GB": str(3.5 * shard / 1e9), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    fields = {
        "name": "web", "entrypoint": ["fit.py"], "code": str(PROGRAM), "datasets": ["web"], "stream": ["web"],
        "processes": ranks, "resources": {"vcpus": 2}, "env": env, "checkpoint": {"every": "5s"},
    }  # fmt: skip
    spec = JobSpec.model_validate(fields)
    job = JobSubmission(job_id="job-1", spec=spec, submitted_at=cluster.clock.now(), datasets=[dataset.id])
    cluster.store.submit(job, PROGRAM)


def read_trace(path: Path) -> list[tuple[int, list[str]]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(step), keys) for step, *keys in map(str.split, lines)]


def expected_keys(dataset: Dataset, rank: int, ranks: int) -> dict[int, list[str]]:
    order = ShardOrder([SAMPLES] * SHARDS, 4, seed=3, window=2, digest=dataset.digest, rank=rank, world_size=ranks)
    batches: list[list[int]] = []
    while len(batches) < STEPS:
        batches += order
        order.next_epoch()
    return {
        step: [f"s{index // SAMPLES:03d}-{index % SAMPLES:03d}" for index in batch]
        for step, batch in enumerate(batches[:STEPS], start=1)
    }


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.nightly)])  # 2: twelve starts of torch
@pytest.mark.torch
@pytest.mark.timeout(900)
def test_a_killed_job_goes_on_at_the_very_sample_of_a_streamed_dataset(
    cluster: Cluster, tmp_path: Path, ranks: int
) -> None:
    dataset = cluster.store.datasets.put("web", write_shards(tmp_path / "shards"))
    submit(cluster, dataset, tmp_path, ranks)
    cluster.assign("job-1", "i-1")
    launcher = {"EVERSPOT_LAUNCHER": program_forks.launcher(ranks)} if ranks > 1 else {}
    killed = cluster.start_agent("i-1", **launcher)
    eventually("it trains", lambda: len(read_trace(tmp_path / f"trace-{ranks - 1}")) >= 4, LONG)

    def last_step() -> int:
        head = cluster.store.checkpoints("job-1").head()
        return max((checkpoint.step for checkpoint in head.checkpoints), default=0) if head is not None else 0

    eventually("there is a checkpoint of a step", last_step, LONG)
    killed.signal_tree(signal.SIGKILL)
    before = len(read_trace(tmp_path / "trace-0"))
    assert before < STEPS
    (tmp_path / "fast").touch()
    cluster.expire("job-1")
    cluster.assign("job-1", "i-2")
    cluster.start_agent("i-2", **launcher)
    record = cluster.wait_state("job-1", JobState.SUCCEEDED, JobState.FAILED, seconds=LONG)
    assert record.state is JobState.SUCCEEDED, cluster.printed()
    for rank in range(ranks):
        trace, expected = read_trace(tmp_path / f"trace-{rank}"), expected_keys(dataset, rank, ranks)
        assert all(keys == expected[step] for step, keys in trace)
        assert {step for step, _ in trace} == set(range(1, STEPS + 1))
    resumed = read_trace(tmp_path / "trace-0")[before][0]
    assert 1 < resumed <= before + 1
    folder = next(cluster.root.glob("instances/i-2-*/**/shards"))
    whole = [path.stat().st_size for path in folder.iterdir() if len(path.name) == 64]
    assert 0 < sum(whole) <= 3.5 * max(whole) < dataset.size / 2
    traffic = re.findall(r"fetched (\d+) cached (\d+)", cluster.printed())
    assert traffic
    assert all(int(number) > 0 for number in traffic[-1])
    ended = next(event for event in cluster.events("job-1") if event.kind is EventKind.FINISHED)
    assert ended.data["shard_traffic"] == dict(
        zip(("fetched_bytes", "cached_bytes"), map(int, traffic[-1]), strict=True)
    )


@pytest.mark.torch
@pytest.mark.nightly  # as long as the test above, and only the bucket differs
@pytest.mark.timeout(900)
def test_a_visit_streams_its_dataset_from_the_bucket_of_its_host(cluster: Cluster, tmp_path: Path) -> None:
    host = Cluster(tmp_path / "host", FAST)
    host.store.write_manifest(host.manifest.model_copy(update={"region": "eu-west-1"}))
    try:
        dataset = cluster.store.datasets.put("web", write_shards(tmp_path / "shards"), region="us-east-1")
        submit(cluster, dataset, tmp_path, 1)
        (tmp_path / "fast").touch()
        job = cluster.store.jobs.get("job-1")
        assert job is not None
        sent = job_transfer.copy_to_host(cluster.store, host.store, job.value, job.value, 0)
        assert sent >= dataset.size
        host.store.submit(job.value)
        host.assign("job-1", "i-1")
        host.start_agent("i-1")
        record = host.wait_state("job-1", JobState.SUCCEEDED, JobState.FAILED, seconds=LONG)
        assert record.state is JobState.SUCCEEDED, host.printed()
        trace, expected = read_trace(tmp_path / "trace-0"), expected_keys(dataset, 0, 1)
        assert dict(trace) == expected
        assert host.store.datasets.find("web").region == "eu-west-1"
    finally:
        host.close()


def test_a_shard_that_is_larger_than_the_cache_is_an_error_of_one_sentence(cluster: Cluster, tmp_path: Path) -> None:
    dataset = cluster.store.datasets.put("web", write_shards(tmp_path / "shards"))
    env = {"TRACE": str(tmp_path / "t"), "FIT_STEPS": "1", "FIT_FAST": str(tmp_path), "CACHE_GB": "0.0001"}
    fields = {"name": "web", "entrypoint": ["fit.py"], "code": str(PROGRAM), "datasets": ["web"], "stream": ["web"]}
    spec = JobSpec.model_validate(fields | {"env": env, "retries": {"errors": 0}})
    job = JobSubmission(job_id="job-1", spec=spec, submitted_at=cluster.clock.now(), datasets=[dataset.id])
    cluster.store.submit(job, PROGRAM)
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    assert cluster.wait_state("job-1", JobState.FAILED).state is JobState.FAILED
    assert "a file of a streamed dataset cannot be had: NoRoom" in cluster.printed()
