"""The market and its machines with a pretend cloud that only records calls."""

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_core.capacity.catalogue import builtin
from everspot_core.jobs.records import Market
from everspot_local.controls.actions import Actions
from everspot_local.machines.lifecycle import Machines
from everspot_local.machines.machine import EndedBy, Machine, MachinePhase
from everspot_local.machines.processes import Boot
from everspot_local.market.delays import Delays
from everspot_local.market.disturbances import CALM
from everspot_local.market.market import LocalMarket
from everspot_local.market.quotas import Quota, Quotas

REGION, ZONE, TYPE = "us-east-1", "us-east-1a", "m6i.large"
QUOTA = Quota("vcpus", "machines", "vCPUs of everything", 8)


@dataclass
class Noted:
    """An instance of the pretend cloud."""

    notes: list[tuple[str, datetime]] = field(default_factory=list)
    machine: Machine | None = None

    def environment(self) -> dict[str, str]:
        return {"PRETEND_CLOUD": "here"}

    def labels(self) -> dict[str, str]:
        return {"Name": "pretend"}

    def entered(self, at: datetime) -> None:
        assert self.machine is not None
        self.notes.append((self.machine.phase.value, at))

    def rebalance_recommended(self, at: datetime) -> None:
        self.notes.append(("rebalance", at))

    def noticed(self, at: datetime) -> None:
        self.notes.append(("notice", at))


class Ground:
    """A market that is not open: nothing happens but what a test does."""

    def __init__(self, folder: Path, command: tuple[str, ...] | None = None) -> None:
        def quotas() -> Quotas:
            return Quotas([QUOTA], lambda kind, market: QUOTA.code)

        self.market = LocalMarket(
            builtin(), REGION, {ZONE: "use1-az1"}, quotas, folder / "market.jsonl",
            scale=1.0, seed=7, delays=Delays(pending=timedelta(), boot=timedelta()), disturbances=CALM,
        )  # fmt: skip
        self.machines = Machines(self.market, Boot(folder / "machines", command))
        self.actions = Actions(self.market, self.machines)

    def launch(self, name: str, market: Market = Market.SPOT) -> tuple[Machine, Noted]:
        pool = self.market.pools.get(TYPE, ZONE)
        assert pool is not None
        noted = Noted()
        noted.machine = Machine(name, pool, market, self.market.clock.now(), noted)
        self.machines.launch(noted.machine)
        return noted.machine, noted

    def close(self) -> None:
        self.market.timeline.stop()
        self.machines.processes.close()
        self.market.log.close()

    def events(self) -> list[str]:
        return [line["event"] for line in self.market.log.read() if line["event"] != "price"]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(tmp_path)
    yield ground
    ground.close()


def test_a_machine_is_noticed_and_taken(ground: Ground) -> None:
    ended: list[str] = []
    ground.machines.listeners.append(lambda machine: ended.append(machine.id))
    machine, noted = ground.launch("one")
    assert (ground.machines.living(), machine.pool.used[Market.SPOT]) == ([machine], 1)
    ground.actions.do({"action": "rebalance", "instance": "one"})
    ground.actions.do({"action": "interrupt", "instance": "oldest", "lead": "30s"})
    assert [kind for kind, _ in noted.notes] == ["pending", "rebalance", "notice"]
    assert machine.reclaim_at == noted.notes[-1][1] + timedelta(seconds=30)
    ground.actions.do({"action": "interrupt", "instance": "one", "notice": False})
    assert (machine.phase, machine.ended_by, ended) == (MachinePhase.ENDED, EndedBy.MARKET, ["one"])
    assert [kind for kind, _ in noted.notes[-2:]] == ["ending", "ended"]
    assert (ground.machines.living(), machine.pool.used[Market.SPOT]) == ([], 0)
    assert ground.events() == ["launch", "end"]


def test_an_on_demand_machine_fails_but_gets_no_notice(ground: Ground) -> None:
    machine, _ = ground.launch("one", Market.ON_DEMAND)
    with pytest.raises(ValueError, match="on-demand"):
        ground.actions.do({"action": "interrupt", "instance": "one"})
    ground.actions.do({"action": "interrupt", "instance": "one", "notice": False})
    assert machine.ended_by is EndedBy.FAILURE


@pytest.mark.parametrize(
    ("name", "words"),
    [("nobody", "no pending or running instance nobody"), ("newest", "no Spot instance"), (ZONE, "no Spot instance")],
)
def test_who_is_not_there_cannot_be_interrupted(ground: Ground, name: str, words: str) -> None:
    with pytest.raises(KeyError, match=words):
        ground.actions.do({"action": "interrupt", "instance": name})


def test_quotas_are_the_clouds_to_name(ground: Ground) -> None:
    ground.actions.do({"action": "quota", "code": "vcpus", "value": 2})
    assert ground.market.quotas.value(QUOTA) == 2
    with pytest.raises(ValueError, match="there are vcpus"):
        ground.actions.do({"action": "quota", "code": "L-34B43A08", "value": 2})


def test_a_machine_boots_with_what_its_cloud_gives_it(tmp_path: Path, helpers: Any) -> None:
    code = "import json, os; open('environment.json', 'w').write(json.dumps(dict(os.environ)))"
    here = Ground(tmp_path, (sys.executable, "-c", code))
    here.market.open()
    with here.market.lock:
        machine, _ = here.launch("one")
    helpers.until(lambda: machine.phase is MachinePhase.ENDED)
    assert (machine.ended_by, here.events()) == (EndedBy.ITSELF, ["launch", "end"])
    environment = (here.machines.processes.folder("one") / "environment.json").read_text()
    assert '"PRETEND_CLOUD": "here"' in environment
    assert '"EVERSPOT_INSTANCE_ID": "one"' in environment
    here.close()


def test_what_was_forgotten_does_not_happen_though_it_was_due(ground: Ground, helpers: Any) -> None:
    happened: list[str] = []
    later = threading.Event()

    def put_down(call: Callable[[], None]) -> None:
        ground.market.timeline.at(ground.market.clock.now(), call)

    ground.market.timeline.start()
    with ground.market.lock:
        put_down(lambda: happened.append("forgotten"))
        helpers.until(lambda: not ground.market.timeline._due)  # taken up: it waits for the lock
        ground.market.timeline.clear()
        put_down(later.set)
    assert later.wait(60)
    assert happened == []
