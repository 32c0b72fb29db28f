"""Uploads and downloads the parts of checkpoints, several at a time."""

import os
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from everspot_core.clock import Clock
from everspot_core.jobs.checkpoint import Part
from xxhash import xxh3_128

from everspot_store.backend import Uploaded
from everspot_store.bucket import Bucket
from everspot_store.copying import write_at
from everspot_store.errors import KeyTaken, StoreUnavailable
from everspot_store.segments import LocalCopies, Segment
from everspot_store.transfers import Transfer

_PARALLEL_PARTS = 4
_KEY_TRIES = 3
_BACKGROUND_NICENESS = 10
"""A thread of this niceness gets about a tenth of the processor time of a busy thread of normal priority, so that an
upload always ends."""


class PartTransfers:
    """Moves parts between this machine and a bucket.

    Args:
        check_guard: called before each write; raises `Fenced` if this owner may no longer write.
    """

    def __init__(self, data: Bucket, clock: Clock, check_guard: Callable[[], None]) -> None:
        self._data = data
        self._clock = clock
        self._check_guard = check_guard
        self._place = ""
        self._uploaded: dict[str, Part] = {}

    def upload(
        self,
        place: str,
        files: Mapping[str, Path],
        segments: Iterable[Segment],
        before: Mapping[str, Part],
        transfer: Transfer,
        wait_for: Callable[[str, int], None],
        *,
        background: bool,
    ) -> list[Part]:
        """Upload files and segments, and return their parts. A segment that an earlier try at the same place has
        uploaded is not uploaded again.

        Args:
            place: prefix of the keys.
            files: by the names of their parts.
            segments: of streams.
            before: segments of the checkpoint before, by name. A segment with the same bytes is not uploaded again.
            transfer: tracks the upload, and may cancel it.
            wait_for: as of `Checkpoints.publish`.
            background: give other threads and processes precedence on the processors.

        Raises:
            Fenced: if `check_guard` raises it.
            StoreUnavailable: if no unused key was found for a part.
            TransferCancelled: if it was cancelled.
        """
        if place != self._place:
            self.forget()
            self._place = place
        uploads = [partial(self._upload_segment, place, segment, before, transfer, wait_for) for segment in segments]
        uploads += [partial(self._upload_file, place, name, path, transfer) for name, path in sorted(files.items())]
        initializer = _give_precedence if background else None
        with ThreadPoolExecutor(_PARALLEL_PARTS, "everspot-upload", initializer) as pool:
            return list(pool.map(lambda upload: upload(), uploads))

    def forget(self) -> None:
        """Forget what earlier tries have uploaded: from now on it may be deleted."""
        self._place, self._uploaded = "", {}

    def fetch(self, parts: Iterable[Part], folder: Path, streams: Path, copies: LocalCopies) -> None:
        """Download parts into `folder`, and segments into the files of their streams in the folder `streams`. A
        segment that `copies` hold unchanged is not downloaded.

        Raises:
            DigestMismatch: if the bytes of a part differ from the published ones.
            FileNotFoundError: if a part does not exist.
        """
        for parent in (folder, streams):
            parent.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(_PARALLEL_PARTS, thread_name_prefix="everspot-download") as pool:
            list(pool.map(lambda part: self._fetch_part(part, folder, streams, copies), parts))

    def _upload_segment(
        self,
        place: str,
        segment: Segment,
        before: Mapping[str, Part],
        transfer: Transfer,
        wait_for: Callable[[str, int], None],
    ) -> Part:
        wait_for(segment.stream, segment.offset + len(segment.view))
        digest = xxh3_128(segment.view).hexdigest()
        for same in (before.get(segment.name), self._uploaded.get(segment.name)):
            if same is not None and (same.size, same.xxh3, same.offset) == (len(segment.view), digest, segment.offset):
                transfer.moved(len(segment.view))
                return same
        key = self._under_free_key(
            f"{place}/{segment.name}",
            lambda key: self._data.upload_view(key, segment.view, transfer.moved),
        )
        part = Part(
            name=segment.name,
            key=key,
            size=len(segment.view),
            xxh3=digest,
            stream=segment.stream,
            offset=segment.offset,
            stored_at=self._clock.now(),
        )
        self._uploaded[segment.name] = part
        return part

    def _upload_file(self, place: str, name: str, path: Path, transfer: Transfer) -> Part:
        stored: list[Uploaded] = []
        key = self._under_free_key(
            f"{place}/{name}",
            lambda key: stored.append(self._data.upload(key, path, transfer.moved)),
        )
        return Part(name=name, key=key, size=stored[-1].size, sha256=stored[-1].sha256)

    def _under_free_key(self, key: str, upload: Callable[[str], None]) -> str:
        """Upload under an unused key, and return it. The plain key is in use only if an earlier try was cut off."""
        for attempt in range(_KEY_TRIES):
            self._check_guard()
            free = key if attempt == 0 else f"{key}~{secrets.token_hex(4)}"
            try:
                upload(free)
            except KeyTaken:
                continue
            return free
        raise StoreUnavailable(f"{key} could not be uploaded")

    def _fetch_part(self, part: Part, folder: Path, streams: Path, copies: LocalCopies) -> None:
        if not part.stream:
            target = folder / part.name
            target.parent.mkdir(parents=True, exist_ok=True)
            self._data.download(part.key, target, part.sha256)
            return
        file = os.open(streams / part.stream, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, part.offset, part.size)  # a full disk raises here, and is no SIGBUS later
            if (copy := copies.find(part)) is not None:
                write_at(file, copy, part.offset)
            else:
                self._data.download_at(part.key, file, part.offset, part.xxh3)
        finally:
            os.close(file)


def _give_precedence() -> None:
    """Lower the priority of this thread. On Linux the call affects one thread only."""
    thread = threading.get_native_id()
    with suppress(OSError):  # only Linux has priorities of threads
        os.setpriority(os.PRIO_PROCESS, thread, max(os.getpriority(os.PRIO_PROCESS, thread), _BACKGROUND_NICENESS))
