"""Copies a job's checkpoint, code, datasets and packages to another cluster's store, and its results back.

Every object is created only if it is absent, and its digest is compared on arrival. Keys depend only on the copied
content, so a second copier, after a crash or at the same time, writes the same objects. All functions raise the errors
of either store.
"""

import mmap
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from everspot_core.jobs.checkpoint import Checkpoint, CheckpointHead, Part, before_loop_end, by_failed_loads
from everspot_core.jobs.job import JobSubmission

from everspot_store.backend import Versioned
from everspot_store.bucket import Bucket
from everspot_store.chunks import Stream
from everspot_store.errors import (
    CheckpointCorrupt,
    DigestMismatch,
    Fenced,
    KeyTaken,
    NoCluster,
    StoreDenied,
    StoreUnavailable,
)
from everspot_store.store import Store

_ROUNDS = 5


def copy_to_host(
    home: Store,
    host: Store,
    job: JobSubmission,
    visit: JobSubmission,
    epoch: int,
    on_sent: Callable[[int], None] = lambda size: None,
) -> int:
    """Copy the objects that a visit needs to the host, and create the visit's head there. Return the bytes that were
    sent, also by earlier calls that were cut off.

    Args:
        home: the cluster of the job.
        host: the cluster to which it goes.
        job: at home.
        visit: its job at the host.
        epoch: the job's epoch at home; its earlier owners are fenced out under it first.
        on_sent: is called with the bytes that this call has sent, part by part, from several threads.

    Raises:
        Fenced: if the job has a later owner at home.
        CheckpointCorrupt: if the job has checkpoints and none is whole.
        FileNotFoundError: if its code, a package or a dataset's file is gone.
    """
    head = home.checkpoints(job.job_id, epoch).fence()
    sent = home.send_code(job, host, visit.job_id)
    for wheel in job.wheels:
        sent += _carry(home.data, wheel.key, wheel.sha256, host.data, wheel.key)
    on_sent(sent)
    for reference in job.datasets:
        dataset = home.datasets.find_reference(reference)
        sent += host.datasets.take_over(
            dataset, home.datasets, visit=visit.job_id, region=_region(host), on_sent=on_sent
        )
    resumed = _resumed(head, home.data, host.data, visit.job_id, 0, on_sent)
    if resumed is not None:
        sent += sum(part.size for part in resumed.copy.parts)
        head_copy = CheckpointHead(job_id=visit.job_id, epoch=0, checkpoints=[resumed.copy])
        host.heads.create(visit.job_id, head_copy)  # if another copier was first, its head is the same
    return sent


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedVisit:
    """The result of copying a visit home. `size`: in bytes. `not_copied`: objects that could not be copied, with the
    reason."""

    size: int
    not_copied: tuple[str, ...] = ()


def copy_home(home: Store, host: Store, job: JobSubmission, visit: str, epoch: int) -> CopiedVisit:
    """Copy the results of an ended visit home: its newest checkpoint, outputs, logs, metrics and utilization. If a
    resume loads an older checkpoint, that one is copied, too. They get `epoch`, which the job got when it left. An
    output that is gone at the host, or exists at home with other bytes, is not copied.

    Raises:
        Fenced: if the job has a later owner at home.
    """
    not_copied: list[str] = []
    brought, visit_head = 0, host.heads.get(visit)
    if visit_head is not None and any(c.epoch > 0 for c in visit_head.value.checkpoints):
        own = visit_head.value.model_copy(
            update={"checkpoints": [c for c in visit_head.value.checkpoints if c.epoch > 0]}
        )
        with suppress(CheckpointCorrupt):  # then the job continues from its checkpoint at home
            checkpoints = _newest(own, host.data, home.data, job.job_id, epoch)
            _publish(home, job, checkpoints, epoch)
            brought += sum({part.key: part.size for copy in checkpoints for part in copy.parts}.values())
    outputs, described = home.outputs(job.job_id), []
    for output in host.outputs(visit).list():
        try:
            if output.key:
                brought += _carry(host.data, output.key, None, home.data, outputs.key_for(epoch, output))
        except (DigestMismatch, FileNotFoundError) as error:
            not_copied.append(f"output {output.path}: {error}")
        else:
            described.append(output)
    outputs.describe(epoch, described)
    for source, target in (
        (host.logs, home.logs), (host.metrics, home.metrics), (host.utilization, home.utilization),
        (host.profiles, home.profiles), (host.event_files, home.event_files),
    ):  # fmt: skip
        brought += _stream(source, visit, target, job.job_id, epoch)
    return CopiedVisit(size=brought, not_copied=tuple(not_copied))


def _region(store: Store) -> str | None:
    """Return the region of a cluster; None if it says none."""
    try:
        return store.manifest().region or None
    except NoCluster:
        return None


@dataclass(frozen=True, slots=True)
class _Resumed:
    """The checkpoint that a resume loads, and its copy in another bucket."""

    original: Checkpoint
    copy: Checkpoint


def _resumed(
    head: CheckpointHead,
    source: Bucket,
    target: Bucket,
    job: str,
    epoch: int,
    on_sent: Callable[[int], None] = lambda size: None,
) -> _Resumed | None:
    """Copy the checkpoint that a resume loads below a job's prefix in another bucket; None without one. The order is
    that of `Checkpoints.restore` in the trainer.

    Raises:
        CheckpointCorrupt: if no checkpoint is whole.
    """
    reasons: list[str] = []
    for checkpoint in before_loop_end(by_failed_loads(head.checkpoints)):
        try:
            return _Resumed(checkpoint, _copy(checkpoint, source, target, job, epoch, on_sent))
        except (DigestMismatch, FileNotFoundError) as error:
            reasons.append(f"step {checkpoint.step}: {error}")
    if reasons:
        raise CheckpointCorrupt(head.job_id, reasons)
    return None


def _newest(head: CheckpointHead, source: Bucket, target: Bucket, job: str, epoch: int) -> list[Checkpoint]:
    """Copy the newest whole checkpoint of a head, and the older ones down to the one that a resume loads. Raises as
    `_resumed`."""
    resumed = _resumed(head, source, target, job, epoch)
    copies: list[Checkpoint] = []
    for checkpoint in head.checkpoints:
        if resumed is not None and checkpoint is resumed.original:
            return [*copies, resumed.copy]
        with suppress(DigestMismatch, FileNotFoundError):
            copies.append(_copy(checkpoint, source, target, job, epoch))
    return copies


def _copy(
    checkpoint: Checkpoint,
    source: Bucket,
    target: Bucket,
    job: str,
    epoch: int,
    on_sent: Callable[[int], None] = lambda size: None,
) -> Checkpoint:
    """Copy a checkpoint. Raises as `_carry`."""
    place = f"jobs/{job}/checkpoints/{epoch:06d}/{checkpoint.step:012d}"
    parts = []
    for part in checkpoint.parts:
        parts.append(_part(part, source, target, place))
        on_sent(part.size)
    return checkpoint.model_copy(update={"epoch": epoch, "parts": parts})


def _part(part: Part, source: Bucket, target: Bucket, place: str) -> Part:
    """Copy a part. Its key contains its digest, so that checkpoints of the same step of different runs have different
    keys."""
    key = f"{place}/{part.name}~{part.digest[:12]}"
    if part.stream:
        _carry_segment(source, part, target, key)
    else:
        _carry(source, part.key, part.sha256, target, key)
    return part.model_copy(update={"key": key})


def _carry(source: Bucket, key: str, sha256: str | None, target: Bucket, to: str) -> int:
    """Copy an object and return its size. An object that exists with the same content is not written again.

    Raises:
        DigestMismatch: if the bytes at the source or the target do not have this digest.
        FileNotFoundError: if the source has none.
    """
    with tempfile.TemporaryDirectory(prefix="everspot-parcel-") as scratch:
        path = Path(scratch, "object")
        digest = source.download(key, path, sha256)
        size = path.stat().st_size
        try:
            arrived = target.upload(to, path).sha256
        except (KeyTaken, StoreDenied) as refused:
            arrived = target.download_existing(to, Path(scratch, "there"), refused)
        if arrived != digest:
            raise DigestMismatch(to, digest, arrived)
    return size


def _carry_segment(source: Bucket, part: Part, target: Bucket, to: str) -> None:
    """Copy a segment of a stream as `_carry` copies an object."""
    with tempfile.TemporaryFile(prefix="everspot-parcel-") as file:
        source.download_at(part.key, file.fileno(), 0, part.xxh3)
        try:
            if part.size:
                with mmap.mmap(file.fileno(), part.size, prot=mmap.PROT_READ) as content, memoryview(content) as view:
                    target.upload_view(to, view)
        except (KeyTaken, StoreDenied) as refused:
            try:
                target.download_at(to, file.fileno(), 0, part.xxh3)
            except FileNotFoundError:
                raise refused from None


def _publish(home: Store, job: JobSubmission, checkpoints: list[Checkpoint], epoch: int) -> None:
    """Make checkpoints the newest at home, under the fence of `epoch`."""
    keep = max(job.spec.checkpoint.keep, len(checkpoints))
    copied = {(checkpoint.epoch, checkpoint.step) for checkpoint in checkpoints}
    for _ in range(_ROUNDS):
        old: Versioned[CheckpointHead] | None = home.heads.get(job.job_id)
        before = old.value.checkpoints if old is not None else []
        if old is not None and old.value.epoch > epoch:
            raise Fenced(job.job_id, epoch, f"epoch {old.value.epoch} has taken over")
        if before[: len(checkpoints)] == checkpoints:
            return
        earlier = [checkpoint for checkpoint in before if (checkpoint.epoch, checkpoint.step) not in copied]
        head = CheckpointHead(job_id=job.job_id, epoch=epoch, checkpoints=[*checkpoints, *earlier][:keep])
        done = home.heads.create(job.job_id, head) if old is None else home.heads.replace(job.job_id, old, head)
        if done is not None:
            return
    raise StoreUnavailable(f"the head of job {job.job_id} changes faster than it can be written")


def _stream(source: Stream, visit: str, target: Stream, job: str, epoch: int) -> int:
    """Append the pieces of a visit's stream, in order, under one epoch."""
    size = 0
    for n, chunk in enumerate(source.read(visit)):
        with suppress(KeyTaken):  # an earlier copier read the last piece before it was complete
            target.append(job, epoch, n, chunk.data)
        size += len(chunk.data)
    return size
