"""Stands in for the health checks of autohealing groups: checks each member, and repairs members that do not answer.

The programs that answer are real, so they get real time: at least a second between two checks, and a while to boot.
Machines without programs have no known health. A check needs status 200, and ignores the answer's body.
"""

import http.client
import socket
import threading
from datetime import timedelta
from typing import Any

from everspot_local.gcp.compute.groups import ManagedGroup
from everspot_local.gcp.compute.members import GroupMember
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.compute.vms import Vm

Document = dict[str, Any]
_APART = timedelta(seconds=1)


class Healing:
    """The health of all groups' members. Called with the market's lock held.

    `patience`: real time that programs have to boot, however short a group's initial delay is.
    """

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        self.patience = timedelta(seconds=20)
        self._watched: set[str] = set()
        compute.project.resets.append(self._watched.clear)

    def watch(self, group: ManagedGroup) -> None:
        """Check a group's members from now on, for as long as it has a policy."""
        if group.path not in self._watched and group.document["autoHealingPolicies"]:
            self._watched.add(group.path)
            self._round(group)

    def _round(self, group: ManagedGroup) -> None:
        if self._compute.groups.get(group.path) is not group or not group.document["autoHealingPolicies"]:
            self._watched.discard(group.path)
            return
        policy = group.document["autoHealingPolicies"][0]
        check = self._compute.resources.get(self._compute.path(policy["healthCheck"]))
        clock = self._compute.project.market.clock
        for member in group.members:
            vm = member.vm
            if check is None or vm is None or not member.running or not self._is_due(vm, policy):
                continue
            threading.Thread(target=self._probe, args=(group, member, vm, dict(check)), daemon=True).start()
        interval = timedelta(seconds=int(check["checkIntervalSec"]) if check else 5)
        self._compute.project.market.timeline.after(max(interval, _APART * clock.scale), lambda: self._round(group))

    def _is_due(self, vm: Vm, policy: Document) -> bool:
        """Return whether a machine runs programs that have had their time to boot."""
        project = self._compute.project
        boot = project.market.pool_delays(vm.machine.pool).boot
        delay = max(timedelta(seconds=int(policy["initialDelaySec"])), self.patience * project.market.clock.scale)
        grown = project.market.clock.now() >= vm.machine.launched_at + boot + delay
        return grown and project.machines.processes.pid(vm.machine.id) is not None

    def _probe(self, group: ManagedGroup, member: GroupMember, vm: Vm, check: Document) -> None:
        """Check a member in a thread of its own, which does not hold the lock while it waits."""
        well = answers(vm.health_address, check)
        with self._compute.project.market.lock:
            if member.vm is vm and member.running and self._compute.groups.get(group.path) is group:
                self._judge(group, member, check, well=well)

    def _judge(self, group: ManagedGroup, member: GroupMember, check: Document, *, well: bool) -> None:
        member.unhealthy = 0 if well else member.unhealthy + 1
        if well:
            member.healthy = True
        if member.unhealthy < int(check["unhealthyThreshold"]):
            return
        member.healthy = False
        rules = group.document["instanceLifecyclePolicy"]
        action = rules["onFailedHealthCheck"]
        if action == "DEFAULT_ACTION":
            action = rules["defaultActionOnFailure"]
        if action == "REPAIR":
            group.recreate(member)


def answers(address: str, check: Document) -> bool:
    """Return whether a health check succeeds. `address`: HOST:PORT."""
    host, _, port = address.rpartition(":")
    seconds = float(check["timeoutSec"])
    try:
        if check["type"] == "TCP":
            with socket.create_connection((host, int(port)), seconds):
                return True
        connection = http.client.HTTPConnection(host, int(port), timeout=seconds)
        try:
            connection.request("GET", check["httpHealthCheck"]["requestPath"])
            return connection.getresponse().status == 200
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return False
