"""The lifecycle of machines, from launch to end: their phases, notices, cost and processes.

They are not stopped, started or hibernated: an interruption by the market ends a machine.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from everspot_core.jobs.records import Market

from everspot_local.machines.issuers import Issuers
from everspot_local.machines.machine import EndedBy, Machine, MachinePhase
from everspot_local.machines.processes import Boot, Processes
from everspot_local.machines.second_cloud import SecondCloud
from everspot_local.machines.trees import Trees
from everspot_local.market.market import LocalMarket
from everspot_local.market.pools import MarketPool

log = logging.getLogger(__name__)


class Machines:
    """All machines of one market. Every method is called with the market's lock held.

    Attributes:
        all: machines by id, ended ones included.
        processes: the machines' processes.
        trees: the trees of images, and the disks that outlive machines.
        listeners: called with each machine whose end begins.
        failure_codes: the cloud's codes of machines that die at their launch.
        second_cloud: the other cloud that this one was introduced to.
        issuers: those who issue identity tokens, where they were introduced.
    """

    def __init__(self, market: LocalMarket, boot: Boot) -> None:
        self._market = market
        self._boots = boot.command is not None
        self.all: dict[str, Machine] = {}
        self.processes = Processes(boot, market.clock.variable, self._processes_ended)
        self.trees = Trees(boot.folder.parent / "images", self.processes.folder)
        self.listeners: list[Callable[[Machine], None]] = []
        self.failure_codes: frozenset[str] = frozenset()
        self.second_cloud = SecondCloud()
        self.issuers = Issuers()
        market.price_listeners.append(self._priced)

    def living(self) -> list[Machine]:
        """Return the pending and running machines, the oldest first."""
        return [machine for machine in self.all.values() if machine.alive]

    def find(self, machine_id: str) -> Machine:
        """Return a living machine by its id.

        Raises:
            KeyError: if the machine does not exist.
        """
        machine = self.all.get(machine_id)
        if machine is None or not machine.alive:
            raise KeyError(f"there is no pending or running instance {machine_id}")
        return machine

    def launch(self, machine: Machine) -> None:
        """Create a machine: it costs from now on, then runs and boots after the market's delays."""
        market, pool = self._market, machine.pool
        pool.used[machine.market] += 1
        self.all[machine.id] = machine
        price = pool.on_demand_usd if machine.market is Market.ON_DEMAND else None
        market.log.launch(machine.id, pool.instance_type, pool.zone, machine.market.value, price, machine.launched_at)
        machine.instance.entered(machine.launched_at)
        delays = market.pool_delays(pool)
        if pool.launch_failures:
            machine.failure = pool.launch_failures.pop(0)
            market.timeline.at(machine.launched_at + delays.fail, lambda: self.take(machine, EndedBy.FAILURE))
        market.timeline.at(machine.launched_at + delays.pending, lambda: self._run(machine))
        if self._boots:
            market.timeline.at(machine.launched_at + delays.boot, lambda: self._boot(machine))

    def rebalance(self, machine: Machine) -> None:
        """Send a Spot machine a rebalance recommendation: its pool is at risk."""
        if machine.rebalance_at is None:
            machine.rebalance_at = self._market.clock.now()
            machine.instance.rebalance_recommended(machine.rebalance_at)

    def notice(self, machine: Machine, lead: timedelta | None = None) -> None:
        """Send a Spot machine its interruption notice, and take it back after the lead.

        Raises:
            ValueError: if the machine is on-demand.
        """
        if machine.market is not Market.SPOT:
            raise ValueError(f"{machine.id} is on-demand: only Spot instances get interruption notices")
        if machine.reclaim_at is not None:
            return
        now = self._market.clock.now()
        usual = self._market.delays.notice if machine.notice is None else machine.notice
        machine.reclaim_at = now + (usual if lead is None else lead)
        machine.instance.noticed(now)
        if machine.off_before:
            self._market.timeline.at(machine.reclaim_at - machine.off_before, lambda: self._ask_off(machine))
        self._market.timeline.at(machine.reclaim_at, lambda: self.take(machine))

    def take(self, machine: Machine, by: EndedBy | None = None) -> None:
        """End a machine immediately, whatever it is doing; for an on-demand one this is a hardware failure by
        default."""
        usual = EndedBy.MARKET if machine.market is Market.SPOT else EndedBy.FAILURE
        self.end(machine, by or usual, graceful=False)

    def end(self, machine: Machine, by: EndedBy, *, graceful: bool) -> None:
        """Begin the end of a machine: its processes are ended, and its cost ends now or with them."""
        if not machine.alive:
            return
        market, now = self._market, self._market.clock.now()
        machine.pool.used[machine.market] -= 1
        machine.ended_by = by
        if not machine.costs_to_the_last:
            self._cost_no_more(machine, now)
        self._enter(machine, MachinePhase.ENDING, now)
        for listener in self.listeners:
            try:
                listener(machine)
            except Exception:  # what replaces a machine must not keep this one from ending
                log.exception("a listener failed at the end of %s", machine.id)
        if self.processes.stop(machine.id, hard=not graceful):
            allowed = market.delays.shutdown if machine.shutdown is None else machine.shutdown
            market.timeline.at(now + allowed, lambda: self.processes.kill(machine.id))
        elif machine.costs_to_the_last:
            market.timeline.at(now + market.delays.operation, lambda: self.complete_end(machine.id))
        else:
            self.complete_end(machine.id)

    def complete_end(self, machine_id: str) -> None:
        """Complete the end of a machine without processes. A machine that was not ended has shut itself down, maybe
        after the SIGTERM of a reclaim."""
        machine = self.all.get(machine_id)
        if machine is None:
            return  # all machines were reset meanwhile
        if machine.alive:
            self.end(machine, EndedBy.MARKET if machine.stop_requested else EndedBy.ITSELF, graceful=False)
        elif machine.phase is MachinePhase.ENDING:
            now = self._market.clock.now()
            if machine.costs_to_the_last:
                self._cost_no_more(machine, now)
            self._enter(machine, MachinePhase.ENDED, now)

    def reset(self) -> None:
        """End all processes and forget every machine."""
        self.processes.close()
        self.trees.clear()
        self.all = {}

    def _priced(self, pool: MarketPool, usd: float) -> None:
        """Give notice to machines whose maximum price is below the pool's new price."""
        for machine in self.living():
            if machine.pool is pool and machine.market is Market.SPOT and usd > (machine.max_usd or usd):
                self.notice(machine)

    def _cost_no_more(self, machine: Machine, now: datetime) -> None:
        machine.ended_at = now
        self._market.log.end(machine.id, machine.ended_by is EndedBy.MARKET, now)

    def _ask_off(self, machine: Machine) -> None:
        """Ask a machine's programs to end in the remaining time; a machine without any just waits to be taken back."""
        if machine.alive:
            machine.stop_requested = True
            self.processes.stop(machine.id, hard=False)

    def _run(self, machine: Machine) -> None:
        if machine.phase is MachinePhase.PENDING:
            self._enter(machine, MachinePhase.RUNNING, self._market.clock.now())

    def _boot(self, machine: Machine) -> None:
        if machine.alive:
            self.processes.boot(machine.id, {**self.second_cloud.variables, **machine.instance.environment()})

    def _enter(self, machine: Machine, phase: MachinePhase, at: datetime) -> None:
        machine.phase = phase
        machine.instance.entered(at)

    def _processes_ended(self, machine_id: str) -> None:
        """Handle the end of a machine's processes, on a thread that does not hold the lock."""
        self._market.timeline.after(timedelta(), lambda: self.complete_end(machine_id))
