"""A simulated cluster: its state, the passing of time, and the view that it gives to a plan.

It simulates instances, jobs and capacity without a scheduler: instances boot; jobs are set up, run and finish; capacity
comes and goes. Time jumps from one event to the next.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from everspot_core.cluster.manifest import Limits
from everspot_core.jobs import lease
from everspot_core.jobs.fit import Shape, fits
from everspot_core.jobs.records import JobState, Market, Reason
from everspot_core.schedule.market.behaviour import Behaviour
from everspot_core.schedule.placement.hosts import total_room
from everspot_core.schedule.view import ClusterView, PoolKey, PoolView

from everspot_simulator.interruptions import interrupt, is_up, lose, next_interruption, room
from everspot_simulator.state import SimulatedAttempt, SimulatedInstance, Task, hours
from everspot_simulator.supply import BEGIN, PoolSupply
from everspot_simulator.trace import Trace
from everspot_simulator.workload import PoolOffer, Workload

HALF_LIFE = timedelta(days=7)
"""The time after which a team's past use counts half in its fair share."""
NAME = "simulated"
_LIMITS = Limits()


class Cluster:
    """The state of a simulation. Time changes it through `pass_to`, a plan through `carry_out`."""

    def __init__(self, workload: Workload, traces: Mapping[str, Trace]) -> None:
        """`traces`: by the names that the workload's fleet uses."""
        self.workload, self.fleet = workload, workload.fleet
        self.now = BEGIN
        self.supply = PoolSupply(self.fleet, traces)
        self.offers = self.fleet.offers()
        self.types = {t.name: t for t in self.fleet.types}
        self.tasks: dict[str, Task] = {}
        self.machines: dict[str, SimulatedInstance] = {}
        self.ended: list[SimulatedInstance] = []
        self.attempts: list[SimulatedAttempt] = []
        self.refused_at: dict[PoolKey, deque[datetime]] = defaultdict(lambda: deque(maxlen=64))
        self.launches_refused = 0
        self.usage: dict[str, float] = {}
        self.noticed: dict[PoolKey, datetime] = {}
        self._behaviours: dict[PoolKey, Behaviour] = {}
        self._unions: dict[frozenset[PoolKey], Behaviour] = dict.fromkeys(_choices(workload), Behaviour())
        self._launched = 0
        arrivals = sorted(workload.jobs, key=lambda j: (j.arrival_hours, j.id))
        self._coming = deque(Task.from_job(job, BEGIN, shared=self.fleet.shared) for job in arrivals)
        self._replenish(ready=True)
        self._happen()

    @property
    def over(self) -> bool:
        """Whether every job has been submitted and has ended, and no launched instance waits for its idle limit."""
        ended = not self._coming and all(t.state.final for t in self.tasks.values())
        return ended and not (self.fleet.idle_limit and self._idle())

    @property
    def quiet(self) -> bool:
        """Whether nothing but a change of capacity can still happen."""
        idles = self.fleet.idle_limit and self._idle()
        return not (self._coming or any(t.instances for t in self.tasks.values()) or self._booting() or idles)

    def next_moment(self) -> datetime | None:
        """Return the time of the next event; None if there is no further event."""
        moments = [m.ready_at for m in self._booting()]
        moments += [self._next_moment(t) for t in self.tasks.values() if t.instances]
        moments += [self._coming[0].submission.submitted_at] if self._coming else []
        change = self.supply.next_change(self.now)
        moments += [change] if change is not None else []
        over = [m.idle_from + self.fleet.idle_limit for m in self._idle()] if self.fleet.idle_limit else []
        moments += [moment for moment in (*over, *next_interruption(self)) if moment > self.now]
        return min(moments, default=None)

    def pass_to(self, moment: datetime) -> None:
        """Advance time to `moment` and apply the events of that moment. There must be no event before it."""
        span = moment - self.now
        keep = 0.5 ** (span / HALF_LIFE)
        self.usage = {team: used * keep for team, used in self.usage.items()}
        for task in self.tasks.values():
            if task.instances:
                team = task.job.team
                self.usage[team] = self.usage.get(team, 0.0) + task.usd_per_hour * (span / hours(1))
        self.now = moment
        self._happen()

    def view(self) -> ClusterView:
        """Return the cluster as a plan sees it now. Ended jobs are in it only while an instance still refers to
        them."""
        waits: dict[str, datetime] = {}
        referenced: set[str] = set()
        for machine in self.machines.values():
            if machine.assignment is not None and machine.assignment.job_id is not None:
                referenced.add(machine.assignment.job_id)
            if machine.launched_for is not None:
                referenced.add(machine.launched_for)
                waits[machine.launched_for] = max(machine.ready_at, waits.get(machine.launched_for, BEGIN))
        jobs = [
            task.view(self.now, self.fleet, waits.get(name))
            for name, task in self.tasks.items()
            if not task.state.final or name in referenced
        ]
        return ClusterView(
            jobs=tuple(jobs),
            instances=tuple(m.view(self.fleet.shared) for m in self.machines.values()),
            draining=False,
            types=self.fleet.types,
            limits=_LIMITS,
            pools=tuple(self._pool(offer) for offer in self.fleet.pools),
            unions=dict(self._unions),
            usage=dict(self.usage),
            shares=self.workload.teams,
            tick=timedelta(seconds=self.fleet.tick_seconds),
            shared=self.fleet.shared,
            standing=None,
            generation="",
            rolling=False,
            booting=0,
            faults=(),
            idle_limit=self.fleet.idle_limit,
            cap=self.fleet.cap,
            cap_uses=(),
            lasting_changeover=None,
        )

    def available(self, key: PoolKey) -> int | None:
        """Return how many more instances a pool can give now; None if there is no limit."""
        return room(self, key)

    def launch(self, key: PoolKey, job_id: str | None) -> SimulatedInstance:
        """Launch an instance from the pool. `job_id`: the job that it is launched for; None for the standing fleet."""
        self._launched += 1
        machine = SimulatedInstance(
            instance_id=f"i-{self._launched:06d}",
            pool=key,
            instance_type=self.types[key.instance_type],
            usd_per_hour=self.offers[key].usd_per_hour,
            launched_at=self.now,
            ready_at=self.now + hours(self.fleet.pool_launch_hours(self.offers[key])),
            launched_for=job_id,
        )
        self.machines[machine.instance_id] = machine
        if machine.ready_at <= self.now:
            machine.boot(NAME)
        return machine

    def end(self, machine: SimulatedInstance, *, interrupted: bool) -> None:
        """End the instance, and with it its cost."""
        machine.ended_at, machine.interrupted = self.now, interrupted
        del self.machines[machine.instance_id]
        self.ended.append(machine)

    def begin_attempt(self, task: Task, machines: tuple[SimulatedInstance, ...]) -> None:
        """Begin an attempt of the job on these instances, with its set-up."""
        task.instances, task.began_at = machines, self.now
        task.works_from = self.now + hours(self.fleet.setup_hours)
        task.speed = task.job.speeds.get(machines[0].instance_type.name, 1.0)
        task.usd_per_hour = sum(m.usd_per_hour * self._part(task, m) for m in machines)
        for machine in machines:
            machine.take(task.job.id, task.record.epoch if task.record else 0)
        self._set_up(task)

    def has_run(self, task: Task) -> bool:
        """Return whether the job ever held instances."""
        return bool(task.instances) or task.done > 0 or (task.record is not None and task.record.last_owner is not None)

    def give_back(self, task: Task, reason: Reason) -> None:
        """End the job's lease and keep its progress: the job was stopped or preempted, or has finished."""
        assert task.record is not None  # noqa: S101 - it holds a lease
        self._note(task, reason)
        before = task.done
        task.done = task.job.actual * 3600 if reason is Reason.FINISHED else task.done_by(self.now)
        progress = task.record.progress.model_copy(update={"new_checkpoints": int(task.done > before)})
        task.record = lease.release(task.record, reason, self.now, task.submission.spec, progress=progress)
        for machine in task.instances:
            machine.leave(task.job.id, self.now)
        task.instances, task.began_at, task.works_from, task.stopped_at, task.back_at = (), None, None, None, None

    def close(self) -> None:
        """End the simulation: record the attempts under way and end all instances."""
        for task in (t for t in self.tasks.values() if t.instances):
            self._note(task, None)
        for machine in list(self.machines.values()):
            self.end(machine, interrupted=False)

    def _note(self, task: Task, reason: Reason | None) -> None:
        assert task.began_at is not None and task.works_from is not None  # noqa: S101 - it holds instances
        self.attempts.append(
            SimulatedAttempt(
                job_id=task.job.id,
                instances=tuple(m.instance_id for m in task.instances),
                began_at=task.began_at,
                works_from=task.works_from,
                worked_until=task.stopped_at or self.now,
                ended_at=self.now,
                speed=task.speed,
                usd_per_hour=task.usd_per_hour,
                reason=reason,
            )
        )

    def _happen(self) -> None:
        """Apply the events of this moment. A job that finishes now has finished, even if its instance is lost now."""
        for task in [t for t in self.tasks.values() if t.instances]:
            self._set_up(task)
            if task.back_at is None and task.ends_at <= self.now:
                self.give_back(task, Reason.FINISHED)
                task.finished_at = self.now
            elif task.back_at is not None and task.back_at <= self.now:
                lose(self, task)
        for machine in self._booting():
            if machine.ready_at <= self.now:
                machine.boot(NAME)
        interrupt(self)
        self._replenish()
        for key in self.offers:
            self._behaviours[key] = self._behaviours.get(key, Behaviour()).observe(is_up(self, key), self.now)
        for keys, behaviour in self._unions.items():
            self._unions[keys] = behaviour.observe(any(self._behaviours[k].up for k in keys), self.now)
        while self._coming and self._coming[0].submission.submitted_at <= self.now:
            task = self._coming.popleft()
            self.tasks[task.job.id] = task

    def _replenish(self, *, ready: bool = False) -> None:
        """Refill the standing fleet as far as there is capacity. `ready`: without boot time, as at the beginning."""
        for line in self.fleet.standing:
            present = sum(m.pool == line.key and m.launched_for is None for m in self.machines.values())
            missing = line.count - present
            spare = self.available(line.key)
            for _ in range(missing if spare is None else min(missing, spare)):
                machine = self.launch(line.key, None)
                if ready and machine.record is None:
                    machine.ready_at = self.now
                    machine.boot(NAME)

    def _set_up(self, task: Task) -> None:
        record = task.record
        assert record is not None and task.works_from is not None and record.owner is not None  # noqa: S101
        if task.works_from <= self.now and record.state is JobState.ASSIGNED:
            task.record = lease.start(record, record.epoch, record.owner, self.now)

    def _next_moment(self, task: Task) -> datetime:
        assert task.works_from is not None  # noqa: S101 - it holds instances
        if task.back_at is not None:
            return task.back_at
        return task.works_from if task.works_from > self.now else task.ends_at

    def _idle(self) -> list[SimulatedInstance]:
        """Return the launched instances without a job, booting ones included."""
        return [m for m in self.machines.values() if m.launched_for is not None and not m.residents]

    def _booting(self) -> list[SimulatedInstance]:
        return [m for m in self.machines.values() if m.record is None]

    def _pool(self, offer: PoolOffer) -> PoolView:
        key = offer.key
        return PoolView(
            instance_type=self.types[key.instance_type],
            zone=key.zone,
            market=key.market,
            usd_per_hour=offer.usd_per_hour,
            available=self.available(key),
            reserved=False,
            behaviour=self._behaviours[key],
            placement_score=None,
            refused_at=tuple(self.refused_at[key]),
            noticed_at=self.noticed.get(key),
            changeover=self.fleet.changeover_to(offer),
        )

    def _part(self, task: Task, machine: SimulatedInstance) -> float:
        """Return the fraction of an instance that counts as the job's: 1, or its largest resource share where jobs
        share."""
        if not self.fleet.shared:
            return 1.0
        has, needs = total_room(Shape.from_machine(machine.instance_type)), total_room(task.job.resources)
        return max(w / h for w, h in zip(needs, has, strict=True) if h)


def _choices(workload: Workload) -> Iterator[frozenset[PoolKey]]:
    """Return the spot pools whose type fits, for each distinct need among the jobs."""
    types = {t.name: t for t in workload.fleet.types}
    spot = [p.key for p in workload.fleet.pools if p.market is Market.SPOT]
    for need in {job.resources.model_dump_json(): job.resources for job in workload.jobs}.values():
        yield frozenset(k for k in spot if fits(need, Shape.from_machine(types[k.instance_type])))
