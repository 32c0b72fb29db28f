"""Passes a user's request to profile a job on to its program, and the program's report back to the store."""

import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from everspot_core.clock import Clock
from everspot_core.jobs.profile import (
    LIBRARY_ADVICE,
    MOST_TRACE_BYTES,
    PROFILE_FOLDER,
    Profile,
    ProfileRequest,
    ProfileState,
)
from everspot_store import ChunkWriter, Store, StoreError

from everspot_train.agent.actions import JobKey
from everspot_train.agent.mailbox import Mailbox
from everspot_train.agent.threads import DueTimer
from everspot_train.rundir import ProfileOrder
from everspot_train.safe_open import open_file_below

LOOK_EVERY = timedelta(seconds=5)
"""The time between two looks for a request, and between two tries to upload a report. Requests exist only while
somebody follows the job."""
GRACE = timedelta(seconds=60)
"""The time after a request in which a program must report that it carries out profile orders. It may be importing
torch."""
_log = logging.getLogger(__name__)


class ProfileRelay:
    """The profiles of one attempt. One thread calls `look`, another one `publish`.

    Args:
        note: writes a line into the job's log.
    """

    def __init__(self, store: Store, job: JobKey, mailbox: Mailbox, clock: Clock, note: Callable[[str], None]) -> None:
        self._store, self._job, self._mailbox, self._clock, self._note = store, job, mailbox, clock, note
        self._due = DueTimer(LOOK_EVERY, clock)
        self._request: ProfileRequest | None = None
        self._ordered_at = timedelta()
        self._retry_at = timedelta()
        self._published: set[tuple[str, ProfileState]] = set()
        self._chunks = ChunkWriter(store.profiles, job.job_id, job.epoch)

    def look(self, *, is_followed: bool, reports_steps: bool) -> None:
        """Order a profile that a user has requested, or withdraw the order if the request was withdrawn. Raises
        `StoreError`.

        Args:
            is_followed: whether somebody follows the job. Who requests a profile follows the job.
            reports_steps: whether the program reports steps, so that it would have reported that it carries out orders.
        """
        if self._request is not None and (self._request.id, ProfileState.REFUSED) not in self._published:
            waited = self._clock.monotonic() - self._ordered_at
            if self._mailbox.profile_report() is None and (reports_steps or waited >= GRACE):
                self._write(Profile(id=self._request.id, state=ProfileState.REFUSED, message=LIBRARY_ADVICE))
        if not is_followed and self._request is None:
            return
        if not self._due.due():
            return
        document = self._store.profile_requests.get(self._job.job_id)
        request = document.value if document is not None and document.value.epoch == self._job.epoch else None
        if request is None:
            if self._request is not None:
                self._mailbox.take_back_profile()
            self._request = None
        elif self._request is None or request.id != self._request.id:
            self._request, self._ordered_at = request, self._clock.monotonic()
            self._mailbox.order_profile(ProfileOrder(id=request.id, steps=request.steps))
            self._note(f"a profile of {request.steps} steps was requested by {request.by or 'a user'}")

    def publish(self, outputs: Path | None, *, last: bool = False) -> None:
        """Write the program's reports since the last call, and its trace. Raises `StoreError`; then the next call tries
        again, after `LOOK_EVERY` or if it is the `last` one. `outputs`: the job's folder of outputs."""
        request = self._request
        if request is None or (self._clock.monotonic() < self._retry_at and not last):
            return
        report = self._mailbox.profile_report()
        profile = report.profile if report is not None else None
        if profile is None or profile.id != request.id:
            return
        if (profile.id, profile.state) in self._published:
            return
        try:
            self._upload(profile, outputs)
        except StoreError:
            self._retry_at = self._clock.monotonic() + LOOK_EVERY
            raise

    def _upload(self, profile: Profile, outputs: Path | None) -> None:
        if profile.trace:
            data = _read_trace(outputs, profile.trace) if outputs is not None else None
            if data is None:
                words = "the trace is no file of at most 64 MiB in the folder outputs/profile"
                profile = profile.model_copy(update={"trace": "", "trace_bytes": 0, "trace_note": words})
            else:
                outputs_of_job = self._store.outputs(self._job.job_id)
                outputs_of_job.put(self._job.epoch, f"{PROFILE_FOLDER}/{profile.trace}", data)
                profile = profile.model_copy(update={"trace_bytes": len(data)})
        self._write(profile)

    def _write(self, profile: Profile) -> None:
        self._chunks.append(profile.to_json())
        self._published.add((profile.id, profile.state))


def _read_trace(outputs: Path, name: str) -> bytes | None:
    """Return a trace; None if it is no regular file below the folder, or too large. Links are not followed, because a
    link may lead to files that the program must not read."""
    try:
        with open_file_below(outputs, (PROFILE_FOLDER, name)) as file:
            data = file.read(MOST_TRACE_BYTES + 1)
    except OSError as error:
        _log.warning("trace %s: %s", name, error)
        return None
    return data if len(data) <= MOST_TRACE_BYTES else None
