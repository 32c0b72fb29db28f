"""Random tests of a cluster's life: submitters, two schedulers and many owners on one store, with a crash at any call
and every outcome of a conditional write. Invariants are checked at every change of the store."""

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from everspot_core.jobs import lease as transitions
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import JobState, Progress, Reason
from everspot_store import Checkpoints, Fenced, JobExists, Lease, ManualClock, Store, StoreUnavailable
from everspot_store.testing import Crash, Fault, FaultScript, faulty_store
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, initialize, invariant, multiple, rule
from store_watchers import Watcher, newest

AT = datetime(2026, 1, 1, tzinfo=UTC)
TTL = timedelta(seconds=60)
JOBS = ["job-a", "job-b"]  # the first meets most of what happens

plans = st.lists(
    st.tuples(st.integers(1, 12), st.sampled_from([fault for fault in Fault if fault is not Fault.DENIED])), max_size=2
)


class Owner:
    """An instance's memory: gone when it crashes."""

    def __init__(self, store: Store, faults: FaultScript, lease: Lease) -> None:
        self.faults = faults
        self.lease = lease
        self.checkpoints: Checkpoints = store.checkpoints(lease.job_id, lease.epoch, guard=lease.valid)
        self.step: int | None = None
        self.alive = True


class Scheduler:
    """A scheduler's memory: how long each record has stood still by its own clock."""

    def __init__(self) -> None:
        self.etags: dict[str, tuple[str, timedelta]] = {}


class ClusterMachine(RuleBasedStateMachine):
    owners = Bundle("owners")

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(AT)
        self.world = Watcher()
        self.schedulers = [Scheduler(), Scheduler()]
        self.submitted: set[str] = set()
        self.all_owners: list[Owner] = []
        self.instances = 0
        self.scripts: list[FaultScript] = []
        self.scratch = tempfile.TemporaryDirectory()

    def teardown(self) -> None:
        try:
            for job_id in sorted(self.submitted):
                self.finish(job_id)
        finally:
            self.scratch.cleanup()

    def store(self, plan: list[tuple[int, Fault]]) -> tuple[Store, FaultScript]:
        faults = FaultScript()
        self.scripts.append(faults)
        for nth, fault in plan:
            faults.on(nth=nth, fault=fault)
        return faulty_store(self.world.control, self.world.data, self.clock, faults), faults

    def plain(self) -> Store:
        return self.store([])[0]

    @initialize()
    def begin_with_a_job(self) -> None:
        self.submit(JOBS[0], [])

    @rule(job_id=st.sampled_from(JOBS), plan=plans)
    def submit(self, job_id: str, plan: list[tuple[int, Fault]]) -> None:
        store, _ = self.store(plan)
        submission = JobSubmission(job_id=job_id, spec=JobSpec(name="x", recipe="r"), submitted_at=AT)
        try:
            store.submit(submission)
        except (Crash, StoreUnavailable):
            return
        except JobExists:
            assert f"jobs/{job_id}.json" in self.world.control.objects
        self.submitted.add(job_id)

    @rule(target=owners, job_id=st.sampled_from(JOBS), plan=plans, start_plan=plans)
    def assign_and_start(
        self, job_id: str, plan: list[tuple[int, Fault]], start_plan: list[tuple[int, Fault]]
    ) -> Owner | MultipleResults[Owner]:
        return self.start_next(job_id, plan, start_plan) or multiple()

    def start_next(
        self, job_id: str, plan: list[tuple[int, Fault]], start_plan: list[tuple[int, Fault]]
    ) -> Owner | None:
        self.instances += 1
        instance = f"i-{self.instances}"
        store, _ = self.store(plan)
        try:
            if store.jobs.get(job_id) is None:
                return None
            old = store.records.get(job_id)
            new = transitions.assign(old.value if old else None, job_id, instance, self.clock.now())
            if old is None:
                store.records.create(job_id, new)
            else:
                store.records.replace(job_id, old, new)
        except (Crash, StoreUnavailable, transitions.IllegalTransition):
            pass
        store, faults = self.store(start_plan)
        try:
            record = store.records.get(job_id)
            if record is None or record.value.owner != instance:
                return None
            lease = store.acquire(job_id, record.value.epoch, instance, ttl=TTL)
        except (Crash, StoreUnavailable):
            return None
        if lease is None:
            return None
        owner = Owner(store, faults, lease)
        self.all_owners.append(owner)
        return owner

    def acting(self, owner: Owner, plan: list[tuple[int, Fault]], act: Callable[[Owner], None]) -> None:
        if not owner.alive:
            return
        owner.faults.clear()
        for nth, fault in plan:
            owner.faults.on(nth=nth, fault=fault)
        try:
            act(owner)
        except Crash:
            owner.alive = False
        except (StoreUnavailable, Fenced):
            pass
        finally:
            owner.faults.clear()

    @rule(owner=owners, plan=plans)
    def renew(self, owner: Owner, plan: list[tuple[int, Fault]]) -> None:
        self.acting(owner, plan, lambda owner: owner.lease.renew(Progress(step=owner.step or 0)) and None)

    @rule(owner=owners, plan=plans)
    def restore(self, owner: Owner, plan: list[tuple[int, Fault]]) -> None:
        def act(owner: Owner) -> None:
            restored = owner.checkpoints.restore(Path(self.scratch.name, "restored"))
            owner.step = max(owner.step or 0, restored.step if restored is not None else 0)

        self.acting(owner, plan, act)

    @rule(owner=owners, plan=plans, steps=st.integers(0, 3))
    def train_and_publish(self, owner: Owner, plan: list[tuple[int, Fault]], steps: int) -> None:
        def act(owner: Owner) -> None:
            if owner.step is None:
                return
            owner.step += steps
            part = Path(self.scratch.name, "part")
            part.write_text(f"{owner.lease.epoch} {owner.step}")
            owner.checkpoints.publish(owner.step, {"model": part, "optimizer": part}, keep=2)

        self.acting(owner, plan, act)

    @rule(owner=owners, plan=plans)
    def retire(self, owner: Owner, plan: list[tuple[int, Fault]]) -> None:
        self.acting(owner, plan, lambda owner: owner.checkpoints.retire() and None)

    @rule(owner=owners, plan=plans, reason=st.sampled_from([Reason.NOTICE, Reason.ERROR, Reason.DRILL]))
    def release(self, owner: Owner, plan: list[tuple[int, Fault]], reason: Reason) -> None:
        self.acting(owner, plan, lambda owner: owner.lease.release(reason) and None)

    @rule(owner=owners)
    def kill(self, owner: Owner) -> None:
        owner.alive = False

    @rule(seconds=st.sampled_from([1, 20, 61]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    @rule(number=st.sampled_from([0, 1]), plan=plans)
    def observe_and_expire(self, number: int, plan: list[tuple[int, Fault]]) -> None:
        scheduler = self.schedulers[number]
        store, _ = self.store(plan)
        try:
            for job_id, record in store.records.scan().items():
                etag, since = scheduler.etags.get(job_id, ("", timedelta(0)))
                if etag != record.etag:
                    scheduler.etags[job_id] = (record.etag, self.clock.monotonic())
                elif record.value.state.owned and self.clock.monotonic() - since >= TTL:
                    store.records.replace(job_id, record, transitions.expire(record.value, self.clock.now()))
        except StoreUnavailable:
            pass
        except Crash:
            self.schedulers[number] = Scheduler()

    @rule(target=owners, plan=plans, fenced=st.booleans())
    def silence_and_takeover(self, plan: list[tuple[int, Fault]], fenced: bool) -> Owner | MultipleResults[Owner]:
        """Let a lease's length pass without renewals; a scheduler notices, and the first job gets its next owner."""
        for _ in range(2):
            self.observe_and_expire(0, [])
            self.clock.advance(TTL)
        self.observe_and_expire(0, [])
        owner = self.start_next(JOBS[0], [], plan)
        if owner is None:
            return multiple()
        if fenced:
            self.acting(owner, [], lambda owner: owner.checkpoints.fence() and None)
        return owner

    @rule()
    def late_writes_arrive(self) -> None:
        for faults in self.scripts:
            faults.arrive()

    @invariant()
    def one_valid_owner_at_most(self) -> None:
        for job_id in JOBS:
            valid = [owner.lease for owner in self.all_owners if owner.lease.job_id == job_id and owner.lease.valid()]
            assert len(valid) <= 1, f"{[(lease.owner, lease.epoch) for lease in valid]} own {job_id}"

    @invariant()
    def submitted_jobs_are_there(self) -> None:
        for job_id in self.submitted:
            assert f"jobs/{job_id}.json" in self.world.control.objects

    def finish(self, job_id: str) -> None:
        """Check that without further faults every submitted job can still be finished from its present state."""
        store = self.plain()
        record = store.records.get(job_id)
        if record is not None and record.value.state.final:
            assert record.value.state is JobState.FAILED and record.value.last_reason is Reason.ERROR
            return
        if record is not None and record.value.state.owned:
            self.clock.advance(TTL)
            expired = store.records.replace(job_id, record, transitions.expire(record.value, self.clock.now()))
            assert expired is not None
            record = expired
        new = transitions.assign(record.value if record else None, job_id, "i-last", self.clock.now())
        assert (store.records.replace(job_id, record, new) if record else store.records.create(job_id, new)) is not None
        lease = store.acquire(job_id, new.epoch, "i-last", ttl=TTL)
        assert lease is not None
        before = store.checkpoints(job_id).head()
        checkpoints = store.checkpoints(job_id, new.epoch, guard=lease.valid)
        restored = checkpoints.restore(Path(self.scratch.name, "last"))
        assert (restored.step if restored else -1) == (newest(before) if before else -1)
        part = Path(self.scratch.name, "part")
        part.write_text("the end")
        checkpoints.publish((restored.step if restored else 0) + 1, {"model": part})
        checkpoints.retire()
        ended = lease.release(Reason.FINISHED, exit_code=0)
        assert ended is not None and ended.state is JobState.SUCCEEDED
        for owner in self.all_owners:
            assert not owner.lease.valid() or owner.lease.job_id != job_id


ClusterMachine.TestCase.settings = settings(
    max_examples=settings.default.max_examples,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestCluster = ClusterMachine.TestCase
