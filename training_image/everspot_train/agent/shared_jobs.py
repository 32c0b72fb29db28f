"""The jobs that share this machine. Each has a `JobRunner` with its own threads, and none waits for another.

So a job that writes its checkpoint, or waits for the store, does not delay the others: at a notice all of them
checkpoint at the same time. If a runner's thread fails, its job is killed and its lease expires. The others continue.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from everspot_core.capacity.instances import Resident
from everspot_core.clock import Clock
from everspot_core.jobs.records import Assignment, Seat

from everspot_train.agent.actions import JobKey
from everspot_train.agent.endings import Ending
from everspot_train.agent.runner import ExternalState, JobRunner
from everspot_train.agent.threads import HELPER_EVERY, LOOK_EVERY, MEASURE_EVERY, Repeating
from everspot_train.agent.world import REMEMBERED

_log = logging.getLogger(__name__)


class SharedJobs:
    """The runners of a shared machine. Only the agent's main thread uses it; any thread may read `residents`.

    Args:
        make_runner: makes the runner of a seat. The runner calls the second argument when its job has ended.
        outside: returns the present orders and notices.
    """

    def __init__(
        self,
        make_runner: Callable[[Seat, Callable[[Ending | None], None]], JobRunner],
        outside: Callable[[], ExternalState],
        clock: Clock,
    ) -> None:
        self._make_runner = make_runner
        self._outside = outside
        self._clock = clock
        self._members: dict[JobKey, _Member] = {}
        self._ended: deque[JobKey] = deque(maxlen=REMEMBERED)
        self.endings: deque[Ending | None] = deque()

    def __bool__(self) -> bool:
        """Return whether there are any runners."""
        return bool(self._members)

    @property
    def residents(self) -> tuple[Resident, ...]:
        """The jobs of the runners, for the instance's record."""
        return tuple(
            Resident(job_id=key.job_id, epoch=key.epoch) for key, m in list(self._members.items()) if m.has_job
        )

    def look(self, assignment: Assignment | None) -> None:
        """Start a runner for each new seat, and drop finished runners."""
        for key in [key for key, member in self._members.items() if member.over]:
            del self._members[key]
            self._ended.append(key)
        for seat in assignment.seats if assignment is not None else ():
            key = JobKey(seat.job_id, seat.epoch)
            if key not in self._members and key not in self._ended:
                self._members[key] = member = _Member(
                    key, self._make_runner(seat, self.endings.append), self._outside, self._clock
                )
                member.start()

    def abandon(self) -> None:
        """Kill all jobs without writing anything more."""
        for member in self._members.values():
            member.end()
        for member in self._members.values():
            member.join()


class _Member:
    """A runner and its threads: one decides and acts; four renew the lease, write logs, upload the folder, and
    measure."""

    def __init__(self, key: JobKey, runner: JobRunner, outside: Callable[[], ExternalState], clock: Clock) -> None:
        self._key = key
        self._runner = runner
        self._outside = outside
        self._clock = clock
        self._ending = False
        self.over = False
        name = f"{key.job_id}-{key.epoch}"
        self._helpers = [
            Repeating(f"beats {name}", HELPER_EVERY, runner.renew, clock),
            Repeating(f"feeds {name}", HELPER_EVERY, runner.ship, clock),
            Repeating(f"folders {name}", HELPER_EVERY, runner.keep_folder, clock),
            Repeating(f"measurements {name}", MEASURE_EVERY, runner.measure, clock),
        ]
        self._thread = threading.Thread(target=self._run, name=f"runner {name}", daemon=True)

    @property
    def has_job(self) -> bool:
        """Whether it has the job, or is about to acquire it."""
        return not self.over and self._runner.memory.job is not None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """Start to kill the job and to end, without waiting."""
        self._ending = True
        self._runner.abandon()

    def join(self) -> None:
        """Wait for the thread's end, for a limited time."""
        self._thread.join(HELPER_EVERY.total_seconds() + LOOK_EVERY.total_seconds())

    def _run(self) -> None:
        """Step the runner until it is done. This thread starts the training process, which must not outlive it."""
        for helper in self._helpers:
            helper.start()
        try:
            while not (self._ending or self._done()):
                self._clock.sleep(LOOK_EVERY)
        except Exception:
            _log.exception("job %s, epoch %d: its thread ended, and the job with it", *self._key)
        finally:
            for helper in self._helpers:
                helper.stop()
            self._runner.abandon()
            self.over = True

    def _done(self) -> bool:
        """Step once, and return whether the job has ended here or can no longer be acquired."""
        failed = next((h.failure for h in self._helpers if h.failure is not None), None)
        if failed is not None:
            raise RuntimeError("a helper thread ended") from failed
        heard = self._outside()
        own_assignment = select_assignment(heard.assignment, self._key)
        leave = self._runner.step(replace(heard, assignment=own_assignment))
        memory = self._runner.memory
        is_assigned = own_assignment is not None and own_assignment.job_id is not None
        return memory.job is None and (leave is not None or not is_assigned or self._key in memory.handled)


def select_assignment(assignment: Assignment | None, key: JobKey | None) -> Assignment | None:
    """Return the part of an assignment for job `key` of a shared machine; without a key, for the job that has the
    machine alone."""
    if assignment is None:
        return None
    if key is None:
        return assignment.model_copy(update={"seats": ()}) if assignment.seats else assignment
    seat = assignment.for_job(key.job_id)
    if seat is not None and assignment.job_id is None and seat.epoch == key.epoch:
        return seat
    return assignment.model_copy(update={"job_id": None, "epoch": 0, "seats": ()})
