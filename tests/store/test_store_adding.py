"""Copying to a store that permits creating but not replacing objects: existing objects are accepted."""

from pathlib import Path

import pytest
from everspot_core.jobs.checkpoint import AFTER_LOOP, CheckpointHead, before_loop_end
from everspot_core.jobs.job import JobSpec, JobSubmission, Wheel
from everspot_store import Bucket, Checkpoints, ManualClock, Store, StoreDenied, job_transfer
from everspot_store.backend import Moved, Uploaded, WriteResult
from everspot_store.testing import MemoryBackend
from pydantic import JsonValue


class AddOnly(MemoryBackend):
    """Behaves like Cloud Storage for a caller without delete permission: creating an existing object is "denied", not
    "taken"."""

    closed = False

    def create(self, key: str, data: bytes) -> WriteResult:
        self._check(key)
        return super().create(key, data)

    def upload(self, key: str, path: Path, moved: Moved | None = None) -> Uploaded:
        self._check(key)
        return super().upload(key, path, moved)

    def _check(self, key: str) -> None:
        if self.closed or self.get(key) is not None:
            raise StoreDenied(f"{key}: storage.objects.delete")


def a_store(name: str, clock: ManualClock, data: MemoryBackend) -> Store:
    return Store(
        Bucket(f"memory:///{name}/c", MemoryBackend(), clock), Bucket(f"memory:///{name}/d", data, clock), clock
    )


def a_job(home: Store, folder: Path) -> JobSubmission:
    for name, content in (("main.py", "print(1)"), ("a-1.whl", "a package"), ("data/x.csv", "1,2")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "code").mkdir()
    (folder / "code/main.py").write_text("print(1)")
    digest = home.data.upload("wheels/tmp", folder / "a-1.whl").sha256
    home.data.upload(f"wheels/{digest}/a-1.whl", folder / "a-1.whl")
    dataset = home.datasets.put("numbers", folder / "data")
    spec = JobSpec(name="j", entrypoint=["main.py"], code="code", clouds=["gcp"])
    submission = JobSubmission(
        job_id="j", spec=spec, submitted_at=home.clock.now(), datasets=[f"numbers@{dataset.digest}"],
        wheels=[Wheel(name="a-1.whl", sha256=digest)],
    )  # fmt: skip
    return home.submit(submission, folder / "code")


class Raced(MemoryBackend):
    """Somebody else writes a new object first, once."""

    first: bytes | None = None

    def create(self, key: str, data: bytes) -> WriteResult:
        if self.first is not None and key.startswith("heads/"):
            super().create(key, self.first)
            self.first = None
        return super().create(key, data)


def test_a_checkpoint_is_brought_home_although_somebody_else_writes_the_head_first(tmp_path: Path) -> None:
    clock, control = ManualClock(), Raced()
    home = Store(Bucket("memory:///home/c", control, clock), Bucket("memory:///home/d", MemoryBackend(), clock), clock)
    host = a_store("host", clock, MemoryBackend())
    job = a_job(home, tmp_path)
    (tmp_path / "model").write_text("a model")
    host.checkpoints("visit", 1).publish(10, {"model": tmp_path / "model"}, keep=2)
    control.first = CheckpointHead(job_id="j", epoch=2, checkpoints=[]).model_dump_json().encode()
    assert job_transfer.copy_home(home, host, job, "visit", 3).size == len("a model")
    assert control.first is None, "nobody was first"
    head = home.checkpoints("j").head()
    assert head is not None and [(checkpoint.step, checkpoint.epoch) for checkpoint in head.checkpoints] == [(10, 3)]


def test_what_another_job_has_brought_is_taken_and_what_may_not_be_added_is_an_error(tmp_path: Path) -> None:
    clock, bucket = ManualClock(), AddOnly()
    home, host = a_store("home", clock, MemoryBackend()), a_store("host", clock, bucket)
    job = a_job(home, tmp_path)
    first, second = (job.model_copy(update={"job_id": f"visit-{n}"}) for n in (1, 2))
    assert job_transfer.copy_to_host(home, host, job, first, 0) > 0
    before = {entry.key: entry.etag for entry in bucket.list("")}
    job_transfer.copy_to_host(home, host, job, second, 0)
    after = {entry.key: entry.etag for entry in bucket.list("")}
    assert {key: etag for key, etag in after.items() if key in before} == before
    assert [key for key in after if key not in before] == [f"code/named/{job.code_digest}/visit-2"]
    host.fetch_code(second, tmp_path / "fetched")
    assert (tmp_path / "fetched/main.py").read_text() == "print(1)"
    closed = AddOnly()
    closed.closed = True
    with pytest.raises(StoreDenied):
        job_transfer.copy_to_host(home, a_store("closed", clock, closed), job, first, 0)


def publish(checkpoints: Checkpoints, path: Path, *versions: tuple[int, dict[str, JsonValue]]) -> None:
    """Publish one checkpoint for each pair of a step and its info. All have other contents."""
    for step, info in versions:
        path.write_text(f"{step} {info}")
        checkpoints.publish(step, {"model": path}, info, again=True)


def versions(store: Store, job: str) -> list[tuple[int, bool, int]]:
    """The steps of a job's checkpoints, whether code after the loop has changed each, and its failed loads."""
    head = store.checkpoints(job).head()
    assert head is not None
    return [(c.step, AFTER_LOOP in c.info, c.failed_loads) for c in head.checkpoints]


def test_a_visit_begins_with_the_checkpoint_that_a_resume_at_home_would_load(tmp_path: Path) -> None:
    clock = ManualClock()
    home, host = (a_store(name, clock, MemoryBackend()) for name in ("home", "host"))
    job = a_job(home, tmp_path)
    owner = home.checkpoints("j", 1)
    publish(owner, tmp_path / "model", (100, {}), (100, {AFTER_LOOP: True}))
    job_transfer.copy_to_host(home, host, job, job.model_copy(update={"job_id": "visit-1"}), 1)
    assert versions(host, "visit-1") == [(100, False, 0)]
    publish(owner, tmp_path / "model", (200, {}))
    owner.note_failed_load(200, 1)
    job_transfer.copy_to_host(home, host, job, job.model_copy(update={"job_id": "visit-2"}), 1)
    assert versions(host, "visit-2") == [(100, True, 0)]


@pytest.mark.parametrize("keep", [1, 2])
def test_a_visit_brings_its_newest_checkpoint_home_and_the_one_that_a_resume_loads(keep: int, tmp_path: Path) -> None:
    clock = ManualClock()
    home, host = (a_store(name, clock, MemoryBackend()) for name in ("home", "host"))
    job = a_job(home, tmp_path)
    policy = job.spec.checkpoint.model_copy(update={"keep": keep})
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"checkpoint": policy})})
    owner = host.checkpoints("visit", 1)
    publish(owner, tmp_path / "model", (100, {}), (100, {AFTER_LOOP: True}))
    job_transfer.copy_home(home, host, job, "visit", 3)
    assert versions(home, "j") == [(100, True, 0), (100, False, 0)]
    publish(owner, tmp_path / "model", (200, {}))
    owner.note_failed_load(200, 1)
    job_transfer.copy_home(home, host, job, "visit", 4)
    assert versions(home, "j")[:2] == [(200, False, 1), (100, True, 0)]
    restored = home.checkpoints("j", 5).restore(tmp_path / "restored", order=before_loop_end)
    assert restored is not None and restored.step == 100
