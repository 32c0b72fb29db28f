"""Checks for the random tests of a cluster's life: every change of the store is checked before it is visible."""

import hashlib

from everspot_core.jobs.checkpoint import CheckpointHead
from everspot_core.jobs.records import JobRecord, JobState, Reason
from everspot_store.testing import MemoryBackend


class Watcher:
    """Sees every change of both buckets before it is visible."""

    def __init__(self) -> None:
        self.control = MemoryBackend(self.control_changes)
        self.data = MemoryBackend(self.data_changes)

    def control_changes(self, key: str, data: bytes | None) -> None:
        folder, _, _ = key.partition("/")
        old = self.control.objects.get(key)
        assert data is not None or folder not in ("jobs", "records", "heads"), f"{key} was deleted"
        if data is None:
            return
        if folder == "jobs":
            assert old is None, "a submission was overwritten"
        if folder == "records":
            self.record_changes(None if old is None else JobRecord.read(old), data)
        if folder == "heads":
            self.head_changes(None if old is None else CheckpointHead.read(old), data)

    def record_changes(self, old: JobRecord | None, data: bytes) -> None:
        new = JobRecord.read(data)
        if old is None:
            return
        assert new.epoch >= old.epoch, "an epoch fell"
        assert not old.state.final, "a final record changed"
        if new.epoch > old.epoch:
            assert old.state is JobState.PENDING, "a job was taken from a live owner without expiry"
        else:
            # One that was declared dead may take its job back, while nobody else has been given it.
            taken_back = old.owner is None and old.last_reason is Reason.LOST and new.owner == old.last_owner
            assert taken_back or new.owner in (old.owner, None), "the owner changed within an epoch"

    def head_changes(self, old: CheckpointHead | None, data: bytes) -> None:
        new = CheckpointHead.read(data)
        for checkpoint in new.checkpoints:
            for part in checkpoint.parts:
                assert hashlib.sha256(self.data.objects[part.key]).hexdigest() == part.sha256, "the head names a ruin"
        if old is not None:
            assert new.epoch >= old.epoch, "the fence fell"
            assert newest(new) >= newest(old), "the head went back"

    def data_changes(self, key: str, data: bytes | None) -> None:
        assert data is None or key not in self.data.objects, f"{key} was overwritten"
        if data is None:
            job = key.split("/")[1]
            head = CheckpointHead.read(self.control.objects[f"heads/{job}.json"])
            published = {part.key for checkpoint in head.checkpoints for part in checkpoint.parts}
            assert key not in published, "a part that the head names was deleted"


def newest(head: CheckpointHead) -> int:
    return max((checkpoint.step for checkpoint in head.checkpoints), default=-1)
