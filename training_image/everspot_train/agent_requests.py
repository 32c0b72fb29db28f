"""Reads the agent's requests from the run directory, cheaply enough for every step."""

from datetime import timedelta

from everspot_core.clock import Clock
from everspot_store import StoreUnavailable

from everspot_train.rundir import CheckpointRequest, LeaseFile, RunDir, StopRequest

_LEASE_AGE = timedelta(seconds=1)


class Requests:
    """Stop and checkpoint requests, and the lease."""

    def __init__(self, rundir: RunDir, clock: Clock) -> None:
        self._rundir, self._clock = rundir, clock
        self._valid_until = timedelta(0)
        self._lease_read: timedelta | None = None
        self._lost = False
        request = rundir.read(CheckpointRequest)
        self._seq = request.seq if request else 0  # what was asked for before this process began needs no checkpoint

    def stop(self) -> StopRequest | None:
        """The request to stop, once there is one."""
        return self._rundir.read(StopRequest)

    def checkpoint(self) -> bool:
        """Whether the agent has asked for a checkpoint since the last time this returned True."""
        request = self._rundir.read(CheckpointRequest)
        if request is None or request.seq <= self._seq:
            return False
        self._seq = request.seq
        return True

    def lost(self) -> bool:
        """Whether the lease is lost for good, so that the job has, or may soon have, another owner."""
        return not self.lease_valid() and self._lost

    def suspended(self) -> bool:
        """Whether the lease has ended because the store is silent, so that the job may have another owner."""
        return not self.lease_valid() and not self._lost

    def may_write(self) -> bool:
        """Whether the process may publish and delete.

        Raises:
            StoreUnavailable: while the lease is suspended.
        """
        if self.suspended():
            raise StoreUnavailable("the lease could not be renewed: nothing is published until it is")
        return self.lease_valid()

    def lease_valid(self) -> bool:
        """Whether the job is still ours. The file is read at most once a second; the clock is compared each time."""
        now = self._clock.monotonic()
        if self._lease_read is None or now - self._lease_read >= _LEASE_AGE or now >= self._valid_until:
            lease = self._rundir.read(LeaseFile)
            self._valid_until = timedelta(seconds=lease.valid_until) if lease else timedelta(0)
            self._lost = lease is None or lease.lost
            self._lease_read = now
        return now < self._valid_until
