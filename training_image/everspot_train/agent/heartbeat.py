"""The heartbeat: the record that an instance writes about itself to the store at every beat."""

import logging
import sys
from datetime import datetime, timedelta
from pathlib import Path

from everspot_clouds.base import Identity
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.records import InstanceRecord, InstanceState, Notice, Resident
from everspot_store import Store, StoreError

from everspot_train.agent.actions import JobKey
from everspot_train.agent.hardware import Hardware
from everspot_train.agent.watch import Contact

MIN_SPACING = timedelta(seconds=5)
"""No object is rewritten more often. One of the supported clouds allows about one write a second for each object."""

_log = logging.getLogger(__name__)


class Heartbeat:
    """Writes the record when a beat is due, and after a change as soon as the spacing allows.

    One thread at a time uses it: the `beats` thread and, once that has ended, the main thread.
    """

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        identity: Identity,
        hardware: Hardware,
        contact: Contact,
        clock: Clock,
        *,
        agent_version: str,
        reported: Path | None = None,
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._identity = identity
        self.hardware = hardware
        self._contact = contact
        self._clock = clock
        self._agent_version = agent_version
        self._booted_at: datetime = clock.now()
        self._beat = 0
        self._last_at: timedelta | None = None
        self._last_said: tuple[object, ...] = ()
        self._detail = ""
        self._residents: tuple[Resident, ...] = ()
        self._reported = reported
        self._clock_is_compared = False

    def beat(
        self,
        state: InstanceState,
        job: JobKey | None,
        notice: Notice | None,
        detail: str = "",
        residents: tuple[Resident, ...] = (),
    ) -> None:
        """Write the record if it is due. If the store fails, the next beat tries again."""
        self._detail, self._residents = detail, residents
        content = (state, job, notice, detail, residents)
        now = self._clock.monotonic()
        wait = (
            MIN_SPACING
            if content != self._last_said
            else self._manifest.limits.beat_interval(busy=job is not None or bool(residents))
        )
        if self._last_at is not None and now - self._last_at < wait:
            return
        self._put(state, job, notice)
        self._last_said = content

    def report_gone(self, notice: Notice | None) -> None:
        """Wait for the spacing, then report GONE."""
        if self._last_at is not None:
            self._clock.sleep(self._last_at + MIN_SPACING - self._clock.monotonic())
        self._residents = ()
        self._put(InstanceState.GONE, None, notice)

    def _put(self, state: InstanceState, job: JobKey | None, notice: Notice | None) -> None:
        self._beat += 1
        self._last_at, before = self._clock.monotonic(), self._clock.now()
        try:
            self._store.instances.put(self._identity.instance_id, self._record(state, job, notice))
        except StoreError as error:
            self._contact.failed(error)
        else:
            self._contact.reached()
            if self._reported is not None:  # this meets the image's boot deadline
                self._reported.touch()
                self._reported = None
            self._compare_clocks(before)

    def _compare_clocks(self, before: datetime) -> None:
        """Compare this machine's clock with the store's, once. A wrong clock does not affect leases, which observers
        measure by their own clocks, but it falsifies the times of all events. `before`: the time right before the
        heartbeat was written."""
        if self._clock_is_compared:
            return
        try:
            skew = self._store.skew_by_heartbeat(self._identity.instance_id, before)
        except StoreError as error:
            _log.info("this machine's clock is not compared with the store's yet: %s", error)
            return
        self._clock_is_compared = True
        if skew:
            side = "behind" if skew > timedelta() else "ahead of"
            _log.error(
                "this machine's clock is %.0f s %s the store's, and its jobs' events get wrong times; check chronyd",
                abs(skew.total_seconds()), side,
            )  # fmt: skip

    def _record(self, state: InstanceState, job: JobKey | None, notice: Notice | None) -> InstanceRecord:
        return InstanceRecord(
            instance_id=self._identity.instance_id,
            cluster=self._manifest.cluster,
            role=self._manifest.role,
            instance_type=self._identity.instance_type,
            zone=self._identity.zone,
            market=self._identity.market,
            **self.hardware.model_dump(),
            state=state,
            job_id=job.job_id if job else None,
            epoch=job.epoch if job else None,
            residents=self._residents,
            notice=notice,
            agent_version=self._agent_version,
            python=f"{sys.version_info.major}.{sys.version_info.minor}",
            generation=self._manifest.generation,
            detail=self._detail,
            booted_at=self._booted_at,
            beat=self._beat,
            updated_at=self._clock.now(),
        )
