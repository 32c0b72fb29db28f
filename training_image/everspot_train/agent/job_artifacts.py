"""Uploads a program's folder of checkpoints and its folder of outputs."""

import logging
import signal
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

from everspot_core.clock import Clock
from everspot_core.jobs.records import EventKind, Reason
from everspot_store import Fenced, Store, StoreError, StoreUnavailable
from everspot_store.outputs import DENIED, GIVEN_UP, NO_ANSWER, NO_BUCKET, NO_TIME

from everspot_train.agent.actions import JobKey
from everspot_train.agent.artifacts.assess import ProgramEnd
from everspot_train.agent.endings import Ending
from everspot_train.agent.folder import FolderCheckpoints
from everspot_train.agent.outcome import EmitEvent
from everspot_train.agent.skips import emit_skipped
from everspot_train.agent.threads import Background
from everspot_train.rundir import RESTORED, Status, TrainingPhase

_TRY_AGAIN = timedelta(seconds=15)
"""The pause before outputs are uploaded again to a store that did not answer."""
RELEASE_TIME = timedelta(seconds=2)
"""The time before a deadline that is reserved for the ending's events and the release of the lease."""

LOAD_TIME = timedelta(hours=1)
"""Real time after its launch from which a program's failure is none of its load, far more than installing its packages
and reading a checkpoint take, unless the checkpoint is very large: see `_SLOWER_LOAD`."""
_SLOWER_LOAD = 2
"""A program's load of a checkpoint takes at most this many times as long as its download, for each of its processes,
because all of them may read all of it from one disk."""

_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""Exit codes of a program that was killed by SIGKILL, for example for lack of memory: the program's, and the code of a
shell around it."""

_UNFINISHED = (NO_TIME, NO_ANSWER, GIVEN_UP, DENIED, NO_BUCKET)
"""The reasons for outputs that would be uploaded with more time, or by another attempt."""

_LONGEST_FAILURE = 300
"""The most characters of an unexpected error in an event."""
_log = logging.getLogger(__name__)


class JobArtifacts:
    """The two folders of one attempt, which the starter sets. A helper thread calls `keep_if_due`, the main thread all
    other methods. A failure here is logged and does not change the job's ending.

    Args:
        outage_limit: how long an ended job without a deadline waits for a store that does not answer.

    Attributes:
        restored: whether the folder of checkpoints was restored before the program was started.
    """

    def __init__(self, store: Store, job: JobKey, clock: Clock, emit: EmitEvent, outage_limit: timedelta) -> None:
        self.folder: FolderCheckpoints | None = None
        self.restored = False
        self.outputs: Path | None = None
        self._store = store
        self._job = job
        self._clock = clock
        self._emit = emit
        self._outage_limit = outage_limit
        self._launched_at: timedelta | None = None
        self._ended_at: timedelta | None = None
        self._restore_time = timedelta()

    def put_back(self, folder: FolderCheckpoints) -> None:
        """Restore the folder of checkpoints. Raises `StoreError`."""
        self.folder, began = folder, self._clock.monotonic()
        self.restored = folder.restore()
        self._restore_time = self._clock.monotonic() - began

    def launched(self) -> None:
        """Record that the program runs, so that files may appear from now on."""
        self._launched_at = self._clock.monotonic()

    @property
    def durable_step(self) -> int | None:
        """The optimizer steps of the folder's newest checkpoint; None: unknown."""
        return self.folder.durable_step if self.folder is not None else None

    @property
    def new_checkpoints(self) -> int | None:
        """The number of checkpoints of the folder that this agent has published; None without a folder."""
        return self.folder.publications if self.folder is not None else None

    def upload(self) -> timedelta:
        """Return how long the last upload of the folder of checkpoints took."""
        return self.folder.took if self.folder is not None else timedelta()

    def keep_if_due(self, *, urgent: bool) -> None:
        """Publish the folder of checkpoints while the program runs, if it is due. Raises `StoreError`."""
        if self.folder is None or self._launched_at is None:
            return
        try:
            self.folder.keep_if_due(urgent=urgent)
        except Fenced as error:
            _log.warning("job %s, epoch %d: %s", *self._job, error)
        except StoreError:
            raise
        except Exception as error:  # an error about a file must not end the agent
            _log.warning("job %s, epoch %d: folder not kept: %s", *self._job, error, exc_info=True)
            self.folder.note_failure(error)

    def keep_last(self, ending: Ending, deadline: Callable[[], timedelta | None], exit_code: int | None) -> bool:
        """Publish the folder of checkpoints after the program's end, as far as a notice leaves time. Return False if
        the deadline came first. Without a notice, old parts are then deleted.

        Args:
            ending: of the attempt.
            deadline: returns the monotonic time of the machine's end; None: not known yet.
            exit_code: of the first process, which shows whether the program ended by itself.

        Raises:
            StoreUnavailable: if the store did not answer, or the lease has to be renewed first. Call again, because the
                newest checkpoint is only on this machine.
        """
        folder = self.folder
        if folder is None or self._launched_at is None or ending.reason is Reason.CANCEL:
            return True
        ended = how_ended(exit_code)
        self._ended_at = ended_at = self._ended_at if self._ended_at is not None else self._clock.monotonic()
        unavailable: list[StoreUnavailable] = []

        def keep() -> None:
            try:
                folder.keep_last(ended)
            except StoreUnavailable as error:
                unavailable.append(error)
                raise
            except StoreError:
                raise
            except Exception as error:
                folder.note_failure(error)
                raise

        def is_over() -> bool:
            return (end := deadline()) is not None and self._clock.monotonic() >= end - RELEASE_TIME

        if not Background(lambda: self._quietly("folder", keep)).wait(is_over):
            _log.warning("job %s, epoch %d: no time is left to keep its folder", *self._job)
            return False
        if unavailable:
            given_up = is_over() if deadline() is not None else self._clock.monotonic() >= ended_at + self._outage_limit
            if not given_up:
                raise unavailable[0]
            return False
        if deadline() is None:
            retire = partial(folder.retire, lambda: deadline() is None)
            Background(lambda: self._quietly("old parts", retire)).wait(lambda: deadline() is not None)
        return True

    def prefer_publications(self) -> None:
        """Delete no old parts before the next publication, because the program is asked to stop."""
        if self.folder is not None:
            self.folder.prefer_publications()

    def note_failed_load(
        self,
        ending: Ending,
        exit_code: int | None,
        status: Status | None,
        scratch: Path,
        *,
        made_steps: bool,
        processes: int = 1,
    ) -> None:
        """Record a failed load, if the program failed while it loaded its checkpoint.

        A program on the trainer library reports its phase. Another program failed there if it has saved nothing and
        made no step since its start, and did not run longer than a load takes.

        Args:
            ending: of the attempt.
            exit_code: of the program.
            status: the last report of the trainer library.
            scratch: the folder into which the library loads.
            made_steps: whether a program without the library has reported a step that it made itself.
            processes: the number of the program's processes, each of which may load the checkpoint.
        """
        folder, launched_at = self.folder, self._launched_at
        if folder is None or launched_at is None or ending.reason is not Reason.ERROR or exit_code in _KILLED:
            return
        if status is None:
            load_time = max(LOAD_TIME, self._restore_time * processes * _SLOWER_LOAD)
            if made_steps or self._clock.monotonic() - launched_at >= load_time:
                return
            self._quietly("failed load", lambda: folder.note_failed_load(library=False))
        elif status.phase is TrainingPhase.FAILED and status.resumed_from is None and (scratch / RESTORED).is_dir():
            self._quietly("failed load", lambda: folder.note_failed_load(library=True))

    def keep_outputs(
        self, has_time: Callable[[], bool], on_progress: Callable[[], None] = lambda: None
    ) -> dict[str, str]:
        """Upload the folder of outputs while `has_time` returns True. `on_progress`: called when bytes have arrived. An
        event reports the files that were not uploaded. Return the reasons for those of them that would have been
        uploaded with more time, or by another attempt, by path."""
        folder = self.outputs
        if folder is None or self._launched_at is None or not folder.is_dir():
            return {}
        outputs, progress_at = self._store.outputs(self._job.job_id), self._clock.monotonic()

        def note_progress() -> None:
            nonlocal progress_at
            progress_at = self._clock.monotonic()
            on_progress()

        try:
            while True:
                _, skipped = outputs.keep(self._job.epoch, folder, has_time, note_progress)
                silence = self._clock.monotonic() - progress_at
                if NO_ANSWER not in skipped.values() or silence + _TRY_AGAIN >= self._outage_limit:
                    break
                self._clock.sleep(_TRY_AGAIN)
                if not has_time():
                    break
        except Exception as error:
            words = f"{type(error).__name__}: {error}"[:_LONGEST_FAILURE]
            self._emit(EventKind.SKIPPED, folder="outputs", reason=f"the agent failed: {words}")
            raise
        emit_skipped(self._emit, "outputs", skipped)
        return {path: reason for path, reason in skipped.items() if reason in _UNFINISHED}

    def _quietly(self, subject: str, action: Callable[[], None]) -> None:
        try:
            action()
        except StoreError as error:
            _log.warning("job %s, epoch %d: %s not kept: %s", *self._job, subject, error)
        except Exception as error:  # an error about a file must not end the agent
            _log.warning("job %s, epoch %d: %s not kept: %s", *self._job, subject, error, exc_info=True)


def how_ended(exit_code: int | None) -> ProgramEnd:
    """Return how a program ended, by the exit code of its first process. A shell exits with 128 plus the signal's
    number if a signal killed its child."""
    if exit_code == 0:
        return ProgramEnd.SOUND
    if exit_code is None or exit_code < 0 or exit_code in (128 + signal.SIGTERM, *_KILLED):
        return ProgramEnd.KILLED
    return ProgramEnd.BY_ITSELF
