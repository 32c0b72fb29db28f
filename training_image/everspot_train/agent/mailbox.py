"""The agent's side of the run directory, through which agent and trainer exchange messages."""

import logging
import shutil
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from everspot_train.agent.actions import StopDemand
from everspot_train.agent.program import HOME
from everspot_train.rundir import (
    CheckpointRequest,
    LeaseFile,
    ProfileOrder,
    ProfileReport,
    RunContext,
    RunDir,
    RunDirError,
    RunFile,
    SavedState,
    Status,
    StopReport,
    StopRequest,
)

_log = logging.getLogger(__name__)


class Mailbox:
    """The messages of one attempt. `owner`: its name in logs. Times are monotonic."""

    def __init__(self, run_dir: RunDir, owner: str) -> None:
        self._run_dir = run_dir
        self._owner = owner
        self._status: Status | None = None
        self._complaint = ""
        self._status_stamp: tuple[int, int, int] | None = None

    def lay_out(self, context: RunContext, valid_until: timedelta) -> None:
        """Create the run directory with the present lease. Raises `OSError`."""
        folder = self._run_dir.path
        shutil.rmtree(folder, ignore_errors=True)
        Path(context.scratch_dir).mkdir(parents=True)
        (folder / HOME).mkdir(mode=0o700)
        self._run_dir.write(context)
        self._run_dir.write(LeaseFile(valid_until=valid_until.total_seconds()))

    def status(self) -> Status | None:
        """Return the trainer's last report; None before the first. An unreadable file counts as no new report."""
        try:
            stat = self._run_dir.file_path(Status).stat()
            stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_size)  # mtime alone is too coarse to distinguish two writes
            if stamp != self._status_stamp:
                self._status = self._run_dir.read(Status)
                self._status_stamp = stamp
        except FileNotFoundError:
            return None
        except (RunDirError, OSError) as error:
            if str(error) != self._complaint:  # log it once: the file is read several times a second
                _log.warning("%s", error)
            self._complaint = str(error)
        return self._status

    def saved_state(self) -> SavedState | None:
        """Return the newest checkpoint that a program on a framework's integration has saved; None if it reports
        none."""
        try:
            return self._run_dir.read(SavedState)
        except RunDirError as error:  # the job's own processes may write there
            _log.warning("%s: %s", self._owner, error)
            return None

    def stop_report(self) -> StopReport | None:
        """Return the program's report on the job's `stop`; None if the program leaves `stop` to the agent."""
        try:
            return self._run_dir.read(StopReport)
        except RunDirError as error:  # the job's own processes may write there
            _log.warning("%s: %s", self._owner, error)
            return None

    def profile_report(self) -> ProfileReport | None:
        """Return the program's report on profile orders; None if it does not carry them out."""
        try:
            return self._run_dir.read(ProfileReport)
        except RunDirError as error:  # the job's own processes may write there
            _log.warning("%s: %s", self._owner, error)
            return None

    def order_profile(self, order: ProfileOrder) -> None:
        """Order a profile."""
        self._hand_over(order)

    def take_back_profile(self) -> None:
        """Withdraw the order of a profile. A profile that has begun is finished."""
        with suppress(OSError):
            self._run_dir.remove(ProfileOrder)

    def tell_lease(self, valid_until: timedelta, *, lost: bool) -> None:
        """Tell the trainer until when it may publish."""
        self._hand_over(LeaseFile(valid_until=valid_until.total_seconds(), lost=lost))

    def ask_to_stop(self, stop: StopDemand) -> None:
        """Ask the trainer to checkpoint and end."""
        deadline = stop.deadline.total_seconds() if stop.deadline is not None else None
        term_at = stop.term_at.total_seconds() if deadline is not None else None
        self._hand_over(StopRequest(reason=stop.reason, deadline=deadline, term_at=term_at))

    def ask_for_checkpoint(self, seq: int) -> None:
        """Ask the trainer to checkpoint and continue."""
        self._hand_over(CheckpointRequest(seq=seq))

    def _hand_over(self, document: RunFile) -> None:
        """Write a file for the trainer. A failure is only logged.

        The program may have filled the disk. If that ended the agent, the program would be restarted again and again. A
        trainer without the renewal publishes nothing after its last known lease, and a trainer without the stop request
        gets SIGTERM.
        """
        try:
            self._run_dir.write(document)
        except FileNotFoundError:  # abandoned and removed meanwhile
            return
        except OSError as error:
            _log.error("%s: %s not written: %s", self._owner, document.file_name, error)
