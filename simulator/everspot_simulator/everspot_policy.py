"""The policy `everspot`: the scheduler's own `plan`, asked about a cluster of one job.

The policy makes a view of the engine's state, runs the plan, and carries out its actions until no action is left. The
market that the job then holds is the choice. A launch takes no time here, because the engine counts the changeover.

Each region is a cluster of a federation. Before it plans, the job moves to another one if `decide_move` says so, by the
forecasts of all of them.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.cluster.manifest import Limits
from everspot_core.federation.decision import DEFAULT, Forecast, MovableJob, decide_move, needs_no_move
from everspot_core.federation.forecast import COPIED_PER_HOUR, MoveCost, forecast_job
from everspot_core.federation.market import ClusterMarket
from everspot_core.jobs import lease
from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import (
    Assignment,
    InstanceRecord,
    InstanceState,
    JobRecord,
    Market,
    Reason,
    Role,
)
from everspot_core.schedule import (
    Action,
    Assign,
    Behaviour,
    ClearAssignment,
    ClusterView,
    Hold,
    InstanceView,
    JobView,
    Launch,
    Outlook,
    PoolKey,
    PoolView,
    Refuse,
    Release,
    Spent,
    Stay,
    Stop,
    plan,
)

from everspot_simulator.engine import UNTIL_CHANGE, Choice, Mode, State
from everspot_simulator.regions import Regions, one_region

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_JOB = "job"
_TYPE = InstanceType(name="any", vcpus=1, memory_gib=1)
_LIMITS = Limits()
_UNSPENT = Spent(dollars=0.0, gpu_hours=0.0)
_REMEMBERED = 32
_ROUNDS = 5
"""The most rounds of planning in a tick: a change of instance takes stop, clear and release, and assign."""


class Unforeseen(RuntimeError):
    """The plan asked for an action that a cluster of one job cannot need, or did not come to rest."""


@dataclass(slots=True)
class EverspotPolicy:
    """Asks the plan. It begins afresh at the first tick of each run, without knowledge of the trace before that.

    `expected`, `upper`: the expected and the greatest duration of the job and of a changeover, relative to their true
    durations. With 1 and 1 the plan knows the true durations. `moves`: False: the job stays in its first region.
    """

    expected: float = 1.0
    upper: float = 1.0
    moves: bool = True
    _job: "_Job" = field(init=False, repr=False, compare=False)

    def choose(self, state: State) -> Choice:
        """Return the choice that the plan makes from this tick on."""
        if state.tick == 0:
            self._job = _Job(state, self.moves)
        return self._job.choose(state, self._outlook(state))

    def _outlook(self, state: State) -> Outlook:
        job, changeover = state.terms.job, state.terms.changeover
        done = job - state.remaining
        return Outlook(
            remaining=timedelta(seconds=max(0.0, job * self.expected - done)),
            remaining_upper=timedelta(seconds=job * self.upper - done),
            changeover=timedelta(seconds=changeover * self.expected),
            changeover_upper=timedelta(seconds=changeover * self.upper),
            changing=timedelta(seconds=state.changing + changeover * (self.upper - 1) * (state.changing > 0)),
        )


class _Job:
    """One run: a job, the pools as observed so far, and the instance that the job holds."""

    def __init__(self, state: State, moves: bool) -> None:
        self._moves = moves
        spec = JobSpec(name=_JOB, recipe="simulated")
        deadline = _BEGIN + timedelta(seconds=state.terms.deadline)
        self._submission = JobSubmission(job_id=_JOB, spec=spec, submitted_at=_BEGIN, deadline_at=deadline)
        self._record: JobRecord | None = None
        self._instances: dict[str, InstanceView] = {}
        self._lost: list[datetime] = []
        self._keys = [PoolKey(_TYPE.name, f"pool-{n}", Market.SPOT) for n in range(len(state.spot))]
        self._behaviours = {key: Behaviour() for key in self._keys}
        self._noticed: dict[PoolKey, datetime] = {}
        regions = state.regions or one_region(len(self._keys), 1.0)
        self._regions = regions
        self._keys_of = [
            [key for key, at in zip(self._keys, regions.pools, strict=True) if at == region]
            for region in range(len(regions.names))
        ]
        self._unions = [Behaviour() for _ in self._keys_of]
        self._moved_at: datetime | None = None
        self._launched = 0

    def choose(self, state: State, outlook: Outlook) -> Choice:
        """Plan until nothing changes, and return the market that the job holds then."""
        now = _BEGIN + timedelta(seconds=state.now)
        self._look(state, now)
        goal = self._goal(state, outlook, now) if self._moves and len(self._keys_of) > 1 else None
        if goal is not None:
            return self._depart(goal, now)
        for _ in range(_ROUNDS):
            actions = plan(self._view(state, outlook, state.region), now)
            if any(isinstance(a, Refuse) for a in actions):
                return Choice(Mode.ON_DEMAND, UNTIL_CHANGE, final=True)
            changes = [a for a in actions if not isinstance(a, Hold | Stay)]
            if not changes:
                return self._choice(state)
            for action in changes:
                self._carry_out(action, now)
        raise Unforeseen(f"still changing its mind after {_ROUNDS} rounds: {changes}")

    def _look(self, state: State, now: datetime) -> None:
        """Observe which pools are up, and whether the held instance is lost."""
        for key, price in zip(self._keys, state.spot, strict=True):
            self._behaviours[key] = self._behaviours[key].observe(price is not None, now)
        self._unions = [
            union.observe(any(self._behaviours[key].up for key in keys), now)
            for union, keys in zip(self._unions, self._keys_of, strict=True)
        ]
        instance = self._instance()
        if instance is not None and state.mode is Mode.IDLE:
            assert self._record is not None and instance.pool is not None  # noqa: S101 - a job that holds something has both
            self._give_up(instance, Reason.NOTICE, now)
            self._lost = [*self._lost, now][-_REMEMBERED:]
            self._noticed[instance.pool] = now

    def _give_up(self, instance: InstanceView, reason: Reason, now: datetime) -> None:
        assert self._record is not None  # noqa: S101 - a job that holds something has one
        progress = self._record.progress.model_copy(update={"new_checkpoints": 1})  # each notice and move lets it save
        self._record = lease.release(self._record, reason, now, self._submission.spec, progress=progress)
        del self._instances[instance.instance_id]

    def _goal(self, state: State, outlook: Outlook, now: datetime) -> int | None:
        """Return the region to move to; None to stay."""
        instance, view = self._instance(), self._view_of_job(outlook)
        traveller = MovableJob(
            job_id=_JOB,
            deadline_at=self._submission.deadline_at,
            has_instance=instance is not None,
            moved_at=self._moved_at,
        )
        held_pool = instance.pool if instance is not None else None
        market = ClusterMarket.from_view(self._regions.names[state.region], self._view(state, outlook, state.region))
        here = forecast_job(view, market, now, held_pool=held_pool)
        if needs_no_move(traveller, here, DEFAULT):
            return None
        others = [n for n in range(len(self._keys_of)) if n != state.region]
        move = decide_move(traveller, here, [self._elsewhere(state, outlook, now, n) for n in others], DEFAULT, now)
        return None if move is None else self._regions.names.index(move.cluster)

    def _elsewhere(self, state: State, outlook: Outlook, now: datetime, region: int) -> Forecast:
        """Return the forecast of another region."""
        market = ClusterMarket.from_view(
            self._regions.names[region],
            self._view(state, outlook, region),
            changeover=Changeover(outlook.changeover, outlook.changeover_upper),
        )
        move_cost = _passage(state, self._regions)
        return forecast_job(self._view_of_job(outlook), market, now, move_cost=move_cost)

    def _depart(self, region: int, now: datetime) -> Choice:
        instance = self._instance()
        if instance is not None:
            self._give_up(instance, Reason.MOVE, now)
        self._moved_at = now
        return Choice(Mode.IDLE, region=region)

    def _instance(self) -> InstanceView | None:
        owner = self._record.owner if self._record is not None else None
        return self._instances.get(owner) if owner is not None else None

    def _view(self, state: State, outlook: Outlook, region: int) -> ClusterView:
        """Return the view of the cluster in a region."""
        spot = [
            PoolView(
                instance_type=_TYPE,
                zone=key.zone,
                market=Market.SPOT,
                usd_per_hour=1.0 if price is None else price,
                available=0 if price is None else None,
                reserved=False,
                behaviour=self._behaviours[key],
                placement_score=None,
                refused_at=(),
                noticed_at=self._noticed.get(key),
                changeover=None,
            )
            for key, price, at in zip(self._keys, state.spot, self._regions.pools, strict=True)
            if at == region
        ]
        on_demand = PoolView(
            instance_type=_TYPE,
            zone="on-demand",
            market=Market.ON_DEMAND,
            usd_per_hour=state.on_demand[region],
            available=None,
            reserved=False,
            behaviour=Behaviour(),
            placement_score=None,
            refused_at=(),
            noticed_at=None,
            changeover=None,
        )
        return ClusterView(
            jobs=(self._view_of_job(outlook),),
            instances=tuple(self._instances.values()),
            pools=(*spot, on_demand),
            unions={frozenset(self._keys_of[region]): self._unions[region]},
            tick=timedelta(seconds=state.terms.tick),
            limits=_LIMITS,
            draining=False,
            types=(),
            usage={},
            shares={},
            shared=False,
            standing=None,
            generation="",
            rolling=False,
            booting=0,
            faults=(),
            idle_limit=timedelta(0),
            cap=None,
            cap_uses=(),
            lasting_changeover=None,
        )

    def _view_of_job(self, outlook: Outlook) -> JobView:
        return JobView(
            submission=self._submission,
            record=self._record,
            stale=False,
            cancel=False,
            drills=(),
            spent=_UNSPENT,
            after=(),
            condition_result=None,
            missing_metric=None,
            awaits=None,
            same_stage=(),
            nodes=1,
            outlook=outlook,
            head_epoch=None,
            changeover=None,
            preempted_at=tuple(self._lost),
            measured=None,
            speeds={},
            measured_speeds=frozenset(),
            withheld=timedelta(0),
            accepted_deadline_at=None,
        )

    def _choice(self, state: State) -> Choice:
        """Return the market that the job holds, for as many ticks as the plan would not change it."""
        instance = self._instance()
        if instance is None or instance.pool is None:
            return Choice(Mode.IDLE)
        if instance.pool.market is Market.ON_DEMAND:
            # The job can leave on-demand only for spot that is available.
            spot_is_up = any(p is not None for p in state.spot)
            return Choice(Mode.ON_DEMAND, 1 if spot_is_up else UNTIL_CHANGE)
        # While the job trains on spot its slack does not change, and so the plan does not either.
        trains = state.mode is Mode.SPOT and state.changing == 0
        return Choice(Mode.SPOT, UNTIL_CHANGE if trains else 1, pool=self._keys.index(instance.pool))

    def _carry_out(self, action: Action, now: datetime) -> None:
        record = self._record
        match action:
            case Launch():
                self._launch(PoolKey(action.instance_type, action.zone, action.market), now)
            case Assign():
                self._record = lease.assign(record, _JOB, action.instance_id, now)
                assignment = Assignment(instance_id=action.instance_id, job_id=_JOB, epoch=action.epoch, changed_at=now)
                self._put(action.instance_id, assignment)
            case Stop() if record is not None:
                self._record = lease.release(record, action.reason, now, self._submission.spec)
            case ClearAssignment():
                self._put(action.instance_id, Assignment(instance_id=action.instance_id, changed_at=now))
            case Release():
                del self._instances[action.instance_id]
            case _:
                raise Unforeseen(f"nothing of this kind can be needed here: {action}")

    def _put(self, instance_id: str, assignment: Assignment) -> None:
        self._instances[instance_id] = replace(self._instances[instance_id], assignment=assignment)

    def _launch(self, pool: PoolKey, now: datetime) -> None:
        self._launched += 1
        name = f"i-{self._launched}"
        record = InstanceRecord(
            instance_id=name,
            cluster="simulated",
            role=Role.AGENT,
            instance_type=pool.instance_type,
            zone=pool.zone,
            market=pool.market,
            vcpus=_TYPE.vcpus,
            memory_gib=_TYPE.memory_gib,
            state=InstanceState.READY,
            booted_at=now,
            updated_at=now,
        )
        self._instances[name] = InstanceView(
            instance_id=name,
            may_exist=True,
            record=record,
            assignment=None,
            stale=False,
            is_gone=False,
            ending=False,
            rebalance=False,
            deadline=None,
            launched_for=_JOB,
            launched_at=now,
            idle_since=None,
            pool=pool,
            residents=(),
        )


def _passage(state: State, regions: Regions) -> MoveCost:
    """Return the way out of the present region. It takes whole ticks here."""
    way = MoveCost.for_bytes(regions.checkpoint_gb, regions.egress_usd[state.region], COPIED_PER_HOUR)
    tick = state.terms.tick
    whole = timedelta(seconds=regions.move_ticks(tick) * tick)
    return replace(way, expected=whole, upper=max(way.upper, whole))
