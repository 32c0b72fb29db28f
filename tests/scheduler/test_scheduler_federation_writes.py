"""A move there and back with a crash at each of its writes in turn: the job never has two owners, loses nothing that
was saved, and ends."""

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from everspot_core.cluster.peers import Peer
from everspot_core.jobs.visit_records import TripEnd
from everspot_scheduler.federation.manager import PeerAccess
from everspot_scheduler.loop import Scheduler
from everspot_store import Bucket, ManualClock, Store
from federation_helpers import Member, Pair

WRITES = ("create", "replace", "put", "delete", "upload")
OF_NO_JOB = re.compile(r"schedulers/|(pools|waiting|usage|changeovers|norms)\.json|ledger/")
"""Keys that schedulers write independently of moves."""
SAVED_HOME, SAVED_THERE = 3, 9


class Crash(BaseException):
    """The scheduler's process ends here; nothing may recover from it."""


class Writes:
    """The writes of all schedulers in their order. The one numbered `fatal` does not happen: its scheduler crashes."""

    def __init__(self, fatal: int | None) -> None:
        self.fatal, self.done, self.armed = fatal, list[str](), False

    def do(self, cluster: str, verb: str, key: str, call: Callable[[], Any]) -> Any:
        if self.armed and not OF_NO_JOB.match(key):
            self.done.append(f"{cluster}: {verb} {key}")
            if len(self.done) - 1 == self.fatal:
                raise Crash
        return call()


class CountedBucket:
    """A bucket of one scheduler, whose writes are counted."""

    def __init__(self, bucket: Bucket, cluster: str, writes: Writes) -> None:
        self._bucket, self._cluster, self._writes = bucket, cluster, writes

    def __getattr__(self, name: str) -> object:
        call = getattr(self._bucket, name)
        if name not in WRITES:
            return call
        return lambda key, *args: self._writes.do(self._cluster, name, key, lambda: call(key, *args))


class Mortal:
    """A scheduler of one cluster that is started again, without any memory, when it has crashed."""

    def __init__(self, pair: Pair, member: Member, writes: Writes) -> None:
        self.member, self._lives = member, count()
        self._stores: dict[str, Any] = {
            name: Store(
                CountedBucket(s.control, member.name, writes), CountedBucket(s.data, member.name, writes), pair.clock
            )
            for name, s in pair.stores.items()
        }
        self._scheduler = self._start()

    def _start(self) -> Scheduler:
        def opener(peer: Peer) -> Store:
            return self._stores[peer.name]

        peer_access = PeerAccess(opener=opener, chooser=self.member.choose, threads=0)
        own, name = self._stores[self.member.name], f"s{next(self._lives)}"
        return Scheduler(own, self.member.manifest, self.member.cloud, name, peer_access=peer_access)

    def tick(self) -> None:
        try:
            self._scheduler.tick()
        except Crash:
            self._scheduler = self._start()


def save(store: Store, job: str, step: int, folder: Path) -> None:
    """Publish a checkpoint as the job's trainer does."""
    record = store.records.get(job)
    assert record is not None
    path = folder / f"{job}-{step}.pt"
    path.write_bytes(f"state of {step}".encode())
    store.checkpoints(job, record.value.epoch).publish(step, {"rank-0.pt": path})


def journey(writes: Writes, folder: Path, *, back: bool) -> Pair:
    """A job that runs at home moves to the host and works there. It ends there, or comes back and ends at home."""
    pair = Pair(None, ManualClock(), length=20)
    schedulers = [Mortal(pair, member, writes) for member in pair.members]
    for member, scheduler in zip(pair.members, schedulers, strict=True):
        member.schedulers = [scheduler]
        member.agent(f"{member.name}-1")
    pair.home.submit("j", clouds=["aws"])
    pair.until("j", "RUNNING")
    save(pair.home.store, "j", SAVED_HOME, folder)
    pair.home.wishes["j"], writes.armed = "host", True
    saved = False
    for _ in range(150):
        if pair.home.state("j") == "SUCCEEDED":
            return pair
        if not saved and pair.host.state(pair.home.visit("j")) == "RUNNING":
            save(pair.host.store, pair.home.visit("j"), SAVED_THERE, folder)
            pair.home.wishes["j"], saved = "home" if back else "host", True
        pair.run(1)  # which checks that nobody has it twice
    raise AssertionError(
        f"the job is {pair.home.state('j')} after all that time; {writes.done[writes.fatal or 0 :][:5]}"
    )


@pytest.mark.parametrize("back", [False, True])
def test_a_crash_at_any_one_write_of_a_move_costs_nothing(tmp_path: Path, back: bool) -> None:
    whole = Writes(None)
    journey(whole, tmp_path, back=back)
    names = {line.partition(": ")[2].partition(" ")[2].partition("/")[0] for line in whole.done}
    assert names >= {"records", "heads", "visits", "jobs", "assignments", "events"}
    assert {line.partition(":")[0] for line in whole.done} == {"home", "host"} and len(whole.done) > 20
    for fatal, write in enumerate(whole.done):
        writes = Writes(fatal)
        pair = journey(writes, tmp_path, back=back)
        assert writes.done[: fatal + 1] == whole.done[: fatal + 1]  # it was that write that did not happen
        record = pair.home.store.records.get("j")
        trips = [trip.end for trip in record.value.trips]
        assert trips == [TripEnd.RETURNED if back else TripEnd.ENDED], (write, trips)
        steps = [checkpoint.step for checkpoint in pair.home.store.checkpoints("j").head().checkpoints]
        assert steps[:2] == [SAVED_THERE, SAVED_HOME], (write, steps)
        assert pair.home.store.checkpoints("j").restore(tmp_path / "restored" / str(fatal)).step == SAVED_THERE, write
        offer = pair.host.store.visits.get(pair.home.visit("j"))
        assert offer.value.state.over and not pair.host.store.records.get(pair.home.visit("j")).value.state.owned, write
