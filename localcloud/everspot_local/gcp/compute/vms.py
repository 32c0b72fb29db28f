"""Stands in for an instance of Compute Engine: its machine, its states, and the operations that report its end.

A machine that shuts itself down stays, stopped, with its name. It does not start one again, suspend, resize or move it;
nor does it restart a standard instance whose host failed: that one stays stopped, too.
"""

import socket
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from everspot_core.jobs.records import Market

from everspot_local.gcp.compute import disks, scheduling
from everspot_local.gcp.compute.names import moment
from everspot_local.gcp.compute.state import Compute, fingerprint
from everspot_local.gcp.environment import endpoints
from everspot_local.gcp.operations import SYSTEM, Operation, OperationFailed
from everspot_local.machines.machine import EndedBy, Machine, MachinePhase
from everspot_local.machines.trees import HOST_NAME_VARIABLE
from everspot_local.market.pools import MarketPool

Document = dict[str, Any]
STANDARD_SHUTDOWN = timedelta(seconds=120)
"""Discovery document, `Scheduling.skipGuestOsShutdown`: between soft and mechanical off, 30 seconds for Spot VMs."""
LAUNCH_FAILURES = frozenset({"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"})
"""Codes with which a launch may fail after it was accepted."""
# Type and words of the operation that tells an end which nobody asked for. Compute Engine, "System event audit logs",
# and as met: GoogleCloudPlatform/gcpdiag, gce/vm-termination. Of the end of a run's time no word is documented.
SYSTEM_ENDS = {
    EndedBy.MARKET: ("compute.instances.preempted", "Instance was preempted."),
    EndedBy.FAILURE: ("compute.instances.hostError", "Instance terminated by Compute Engine."),
    EndedBy.ITSELF: ("compute.instances.guestTerminate", "Guest OS initiated shutdown."),
}


class Vm:
    """An instance of Compute Engine: it holds its document in the project's records, and moves with its machine.

    Args:
        compute: the project's.
        path: of the instance; its document is there.
        pool: of the market, that its machine is of.
        fleet: path of the group that made it, if one did.
    """

    def __init__(self, compute: Compute, path: str, pool: MarketPool, fleet: str | None = None) -> None:
        self.compute, self.path = compute, path
        self.document = compute.get(path)
        compute.vms[path] = self
        self.beginning: Operation | None = None
        self.ends: list[Operation] = []
        self.late_stockout: OperationFailed | None = None
        self._deleted = False
        rules = self.document["scheduling"]
        spot = rules["provisioningModel"] == "SPOT"
        soft = timedelta() if rules.get("skipGuestOsShutdown") else compute.project.market.delays.notice
        self.machine = Machine(
            str(self.document["id"]),
            pool,
            Market.SPOT if spot else Market.ON_DEMAND,
            datetime.fromisoformat(self.document["creationTimestamp"]).astimezone(UTC),  # it costs from the moment told
            self,
            fleet,
            notice=scheduling.notice_period(rules) + soft if spot else None,
            off_before=soft if spot else timedelta(),
            shutdown=soft if spot or not soft else STANDARD_SHUTDOWN,
            costs_to_the_last=True,
        )

    @cached_property
    def health_address(self) -> str:
        """Return host and port at which the instance answers health checks: all machines share this one's addresses."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            return f"127.0.0.1:{free.getsockname()[1]}"

    @property
    def status(self) -> str:
        """Return the status that the API shows."""
        machine, market = self.machine, self.compute.project.market
        if machine.phase is MachinePhase.PENDING:
            early = market.clock.now() < machine.launched_at + market.pool_delays(machine.pool).pending / 2
            return "PROVISIONING" if early else "STAGING"
        if machine.phase is MachinePhase.RUNNING:
            return "STOPPING" if machine.stop_requested else "RUNNING"
        return "STOPPING" if machine.phase is MachinePhase.ENDING else "TERMINATED"

    @property
    def has_lasting_disk(self) -> bool:
        """Return whether its boot disk stays after it."""
        return not self.document["disks"][0].get("autoDelete")

    def shown(self) -> Document:
        """Return the instance's document with its status."""
        return {**self.document, "status": self.status, "labelFingerprint": fingerprint(self.document.get("labels"))}

    def environment(self) -> dict[str, str]:
        """Return the environment in which the instance's programs find the project's services and its metadata
        server."""
        project = self.compute.project
        boot_disk = self.compute.get(self.compute.path(self.document["disks"][0]["source"]))
        return {
            **project.machines.trees.variables(boot_disk["sourceImageId"], lasting=self.has_lasting_disk),
            **endpoints(project.endpoint),
            "EVERSPOT_CLOUD": "gcp",
            HOST_NAME_VARIABLE: self.document["name"],
            "EVERSPOT_HEALTH": self.health_address,
            "GCE_METADATA_HOST": project.metadata.address(self.machine.id),
        }

    def labels(self) -> dict[str, str]:
        """Return the instance's labels."""
        return dict(self.document.get("labels", {}))

    def rebalance_recommended(self, at: datetime) -> None:
        """Do nothing: Compute Engine has no such recommendation."""

    def noticed(self, at: datetime) -> None:
        """Tell the notice on the metadata server; no operation reports it yet."""
        self.compute.project.metadata.changed(self.machine.id)

    def entered(self, at: datetime) -> None:
        """Record the times that the API shows, and advance the instance's operations."""
        phase = self.machine.phase
        if phase is MachinePhase.RUNNING:
            self._run(at)
        elif phase is MachinePhase.ENDING:
            self._begin_to_end()
        elif phase is MachinePhase.ENDED:
            self._end(at)
        self.compute.project.metadata.changed(self.machine.id)

    def delete(self, operation: Operation) -> None:
        """End the instance and forget it; the operation is then done."""
        self._deleted = True
        self.ends.append(operation)
        if self.machine.alive:
            self.compute.project.machines.end(self.machine, EndedBy.USER, graceful=True)
        elif self.machine.phase is MachinePhase.ENDED:
            delay = self.compute.project.market.delays.operation
            self.compute.project.market.timeline.after(delay, self._forget)

    def _run(self, at: datetime) -> None:
        self.document["lastStartTimestamp"] = moment(at)
        if self.beginning is not None:
            self.compute.operations.finish(self.beginning)
        limit = scheduling.run_limit(self.document["scheduling"], at)
        if limit is not None:
            self.document["resourceStatus"] = {"scheduling": {"terminationTimestamp": moment(limit)}}
            self.compute.project.market.timeline.at(limit, self._time_is_up)

    def _time_is_up(self) -> None:
        machines = self.compute.project.machines
        if self.machine.alive and machines.all.get(self.machine.id) is self.machine:
            machines.end(self.machine, EndedBy.LIMIT, graceful=True)

    def _begin_to_end(self) -> None:
        by = self.machine.ended_by
        operations = self.compute.operations
        if self.machine.failure and self.beginning is not None and self.late_stockout is not None:
            # The insertion fails after it was accepted, and leaves no instance.
            operations.finish(self.beginning, [self.late_stockout])
            self._deleted = True
            return
        if self.beginning is not None and not self.beginning.done:
            # As met: https://github.com/scylladb/scylla-cluster-tests/issues/2790
            preempted = OperationFailed("PREEMPTED", "Instance failed to start due to preemption.", status=409)
            operations.finish(self.beginning, [preempted] if by is EndedBy.MARKET else None)
        if by is not None and by in SYSTEM_ENDS:
            kind, message = SYSTEM_ENDS[by]
            scope = self.path.rpartition("/instances/")[0]
            never = timedelta(seconds=-1)  # it is finished when the machine has ended
            operation = operations.begin(kind, scope, self.path, self.machine.id, SYSTEM, duration=never)
            operation.document["statusMessage"] = message
            self.ends.append(operation)

    def _end(self, at: datetime) -> None:
        self.document["lastStopTimestamp"] = moment(at)
        reclaimed = self.machine.ended_by in (EndedBy.MARKET, EndedBy.LIMIT)
        self.compute.project.metadata.close(self.machine.id)
        if self._deleted or (reclaimed and scheduling.deleted_at_end(self.document["scheduling"])):
            self._forget(at)
        else:
            self._finish(at)

    def _forget(self, at: datetime | None = None) -> None:
        if self.compute.resources.get(self.path) is self.document:
            del self.compute.resources[self.path]
            self.compute.vms.pop(self.path, None)
            disks.release(self.compute, self.document)
        self._finish(at)

    def _finish(self, at: datetime | None) -> None:
        """Finish the operations that wait for the machine's end.

        `at`: when it ended, as the market's log has it; None for one that had ended before.
        """
        for operation in self.ends:
            self.compute.operations.finish(operation, at=at)
        self.ends.clear()
