"""Stands in for what a regional managed instance group does by itself: it creates, repairs, replaces and deletes
instances.

A group keeps its size: it creates failed and reclaimed instances again, under the same name with a new id, until it
succeeds. It does not move instances to balance its zones, and it does not start or resume instances.
"""

import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from everspot_local.gcp.answers import ApiError
from everspot_local.gcp.compute.launching import find_kind, lacking, launch, read_market
from everspot_local.gcp.compute.members import GroupMember, without_repeats
from everspot_local.gcp.compute.names import moment, tail
from everspot_local.gcp.compute.selection import RankedTypes, choose, read_ranked_types
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.compute.vms import Vm
from everspot_local.gcp.operations import OperationFailed
from everspot_local.gcp.project import NUMBER
from everspot_local.machines.machine import Machine

Document = dict[str, Any]
AGENT = f"{NUMBER}@cloudservices.gserviceaccount.com"
"""Google's service agent for groups ("Service agents")."""
_LETTERS = "bcdfghjklmnpqrstvwxz0123456789"
_TRY_OUT = timedelta(seconds=1)
ERRORS_AT_MOST = 50


class ManagedGroup:
    """A managed instance group. Its methods are called with the market's lock held.

    Attributes:
        errors: failed attempts, the latest last, as `listErrors` shows them.
        members: in the order of their creation.
    """

    def __init__(self, compute: Compute, path: str, done: Callable[[], None]) -> None:
        self.compute, self.path = compute, path
        self.members: list[GroupMember] = []
        self.errors: list[Document] = []
        self.ending = False
        self._trying = False
        self._done = done
        self._draw = random.Random(f"{compute.project.options.seed}/{path}")  # noqa: S311 - a name, not a secret

    @property
    def document(self) -> Document:
        """Return the group as it is stored."""
        return self.compute.get(self.path)

    @property
    def size(self) -> int:
        """Return the target size."""
        return 0 if self.ending else int(self.document["targetSize"])

    def staying(self) -> list[GroupMember]:
        """Return the members that are not to be deleted."""
        return [member for member in self.members if not member.leaving]

    def adjust(self) -> None:
        """Change the number of members to the target size, and replace outdated ones where the policy is proactive."""
        staying = self.staying()
        for member in self._superfluous(staying)[: max(0, len(staying) - self.size)]:
            self.let_go(member)
        for _ in range(self.size - len(staying)):
            self.members.append(GroupMember(self._new_name()))
        self._replace_outdated()
        self.make()

    def make(self) -> None:
        """Create the missing instances as far as there is capacity, and try again later for the rest."""
        waiting = [m for m in self.members if m.vm is None and m.action in ("CREATING", "RECREATING")]
        for member in waiting:
            self._make(member)
        if any(member.vm is None for member in waiting) and not self._trying:
            self._trying = True
            self._later(self.compute.project.market.delays.retry, self._try_again)

    def let_go(self, member: GroupMember) -> None:
        """Delete a member and its instance; the group then forgets it."""
        member.action = "DELETING"
        if (vm := self._existing_vm(member)) is None:
            self._forget(member)
        else:
            self._delete(member, vm)

    def recreate(self, member: GroupMember) -> None:
        """Delete a member's instance, and create it again under the same name."""
        if member.leaving or member.action == "RECREATING":
            return
        member.action = "RECREATING"
        if (vm := self._existing_vm(member)) is not None:
            self._delete(member, vm)
        else:
            member.vm = None
            self.make()

    def ended(self, machine: Machine) -> None:
        """Repair the member of a machine that ends without having been asked to."""
        member = next((m for m in self.members if m.vm is not None and m.vm.machine is machine), None)
        if member is None:
            return
        repairs = self.document["instanceLifecyclePolicy"]["defaultActionOnFailure"] == "REPAIR"
        if member.action in ("NONE", "CREATING", "VERIFYING") and repairs:
            heal = self.compute.project.market.delays.heal
            self._later(heal, lambda: self._repair(member, machine))

    def end(self) -> None:
        """Delete all members."""
        self.ending = True
        for member in list(self.members):
            if not member.leaving:
                self.let_go(member)
        self._look_done()

    def is_stable(self) -> bool:
        """Return whether no member has an action in progress."""
        repairs = self.document["instanceLifecyclePolicy"]["defaultActionOnFailure"] == "REPAIR"
        rests = all(m.action == "NONE" and (m.running or not repairs) for m in self.members)
        return rests and len(self.members) == self.size

    def _existing_vm(self, member: GroupMember) -> Vm | None:
        """Return a member's instance if it exists, running or stopped."""
        vm = member.vm
        return vm if vm is not None and self.compute.vms.get(vm.path) is vm else None

    def _try_again(self) -> None:
        self._trying = False
        self.make()

    def _repair(self, member: GroupMember, machine: Machine) -> None:
        if member in self.members and member.vm is not None and member.vm.machine is machine:
            self.recreate(member)

    def _make(self, member: GroupMember) -> None:
        document = self.document
        if member.action == "CREATING" or document["instanceLifecyclePolicy"]["forceUpdateOnRepair"] == "YES":
            member.template = document["instanceTemplate"]
        properties = self._properties(member.template)
        ranked_types = self._ranked_types(properties)
        zones = [tail(zone["zone"]) for zone in document["distributionPolicy"]["zones"]]
        if member.zone and document["instanceLifecyclePolicy"]["onRepair"]["allowChangingZone"] != "YES":
            zones = [member.zone]
        problems: list[OperationFailed] = []

        def available(machine_type: str, zone: str) -> int:
            kind = find_kind(self.compute, {**properties, "machineType": machine_type}, zone)
            problem = lacking(self.compute, kind, zone, read_market(properties))
            if problem is not None:
                problems.append(problem)
                return 0
            pool = self.compute.project.market.pools.get(kind, zone)
            return pool.available(read_market(properties)) if pool is not None else 0

        present: dict[str, int] = {}
        for other in self.members:
            if other.vm is not None and other is not member:
                present[other.zone] = present.get(other.zone, 0) + 1
        shape = document["distributionPolicy"]["targetShape"]
        chosen = choose(shape, 1, ranked_types, zones, available, present)
        if not chosen:
            self._note(member, problems)
            return
        self._launch(member, {**properties, "machineType": chosen[0][1]}, chosen[0][0])

    def _launch(self, member: GroupMember, properties: Mapping[str, Any], zone: str) -> None:
        # Compute Engine, "Check if a VM is part of a MIG": the group names itself in its VMs' metadata.
        metadata = properties.get("metadata") or {}
        items = [*(metadata.get("items") or ()), {"key": "created-by", "value": self.path}]
        properties = {**properties, "metadata": {**metadata, "items": items}}
        try:
            operation, vm = launch(self.compute, zone, member.name, properties, AGENT, fleet=self.path)
        except ApiError as error:
            self._note(member, [OperationFailed(error.reason.upper(), error.message, status=error.status)])
            return
        member.zone, member.machine_type = zone, tail(str(properties["machineType"]))
        if vm is None:
            self._note(member, [OperationFailed("INTERNAL_ERROR", str(operation.document["name"]))])
            return
        member.vm, member.failed, member.unhealthy, member.healthy = vm, [], 0, None
        pending = self.compute.project.market.pool_delays(vm.machine.pool).pending
        self._later(pending, lambda: self._started(member, vm))

    def _started(self, member: GroupMember, vm: Vm) -> None:
        if member.vm is vm and member.running and not member.leaving:
            member.action = "NONE"
            self._replace_outdated()
        elif member.vm is vm and vm.status in ("PROVISIONING", "STAGING"):
            self._later(_TRY_OUT, lambda: self._started(member, vm))

    def _properties(self, template: str) -> Document:
        """Return a template's properties; if it was deleted meanwhile, the group's own template counts."""
        template_document = self.compute.resources.get(self.compute.path(template))
        template_document = template_document or self.compute.get(self.compute.path(self.document["instanceTemplate"]))
        return dict(template_document["properties"])

    def _ranked_types(self, properties: Mapping[str, Any]) -> RankedTypes:
        policy = self.document.get("instanceFlexibilityPolicy")
        if policy is not None:
            return read_ranked_types(policy["instanceSelections"], "resource.instanceFlexibilityPolicy")
        return RankedTypes(((tail(properties["machineType"]),),))

    def _note(self, member: GroupMember, problems: list[OperationFailed]) -> None:
        """Record an error, for the member and for the list of errors."""
        member.failed = without_repeats(problems)
        now = moment(self.compute.project.market.clock.now())
        for problem in member.failed:
            details = {
                "action": member.action,
                "instance": self.compute.link(self._instance_path(member)),
                "version": {"instanceTemplate": member.template},
            }
            error = {"code": problem.code, "message": problem.message}
            self.errors.append({"timestamp": now, "error": error, "instanceActionDetails": details})
        del self.errors[:-ERRORS_AT_MOST]

    def _instance_path(self, member: GroupMember) -> str:
        zone = member.zone or tail(self.document["distributionPolicy"]["zones"][0]["zone"])
        return f"projects/{self.compute.name}/zones/{zone}/instances/{member.name}"

    def _delete(self, member: GroupMember, vm: Vm) -> None:
        operations, scope = self.compute.operations, vm.path.rpartition("/instances/")[0]
        never = timedelta(seconds=-1)  # it is done when the instance is gone
        vm.delete(operations.begin("delete", scope, vm.path, vm.machine.id, AGENT, duration=never))
        self._after_end(member, vm.machine)

    def _after_end(self, member: GroupMember, machine: Machine) -> None:
        """Wait until the instance is gone; then forget the member, or create it again."""
        if member.vm is None or member.vm.machine is not machine or member not in self.members:
            return
        if self._existing_vm(member) is not None:
            self._later(_TRY_OUT, lambda: self._after_end(member, machine))
        elif member.leaving:
            self._forget(member)
        elif member.action == "RECREATING":
            member.vm = None
            self.make()

    def _forget(self, member: GroupMember) -> None:
        if member in self.members:
            self.members.remove(member)
        self._look_done()

    def _look_done(self) -> None:
        if self.ending and not self.members:
            self._done()

    def _superfluous(self, staying: list[GroupMember]) -> list[GroupMember]:
        """Order members by who is deleted first: members without an instance, then the youngest."""
        young = list(reversed(staying))
        return sorted(young, key=lambda member: member.running)

    def _replace_outdated(self) -> None:
        """Replace outdated members under a proactive policy: new ones beside the old, or in their places, by surge and
        unavailability."""
        policy, template = self.document["updatePolicy"], self.document["instanceTemplate"]
        if self.ending or policy["type"] != "PROACTIVE" or policy["minimalAction"] == "NONE":
            return
        staying = self.staying()
        old = [m for m in staying if m.vm is not None and m.template != template]
        extra = len(staying) - self.size
        new_and_up = [m for m in staying if m.template == template and m.running]
        if policy["replacementMethod"] == "SUBSTITUTE" and policy["maxSurge"]["fixed"]:
            for member in old[: max(0, min(extra, len(new_and_up)))]:
                self.let_go(member)
            room = min(policy["maxSurge"]["fixed"], len(old)) - max(0, extra)
            self.members += [GroupMember(self._new_name()) for _ in range(max(0, room))]
            self.make()
            return
        down = sum(not member.running for member in staying)
        for member in old[: max(0, policy["maxUnavailable"]["fixed"] - down)]:
            self.recreate(member)

    def _new_name(self) -> str:
        used_names = {member.name for member in self.members}
        while True:
            end = "".join(self._draw.choice(_LETTERS) for _ in range(4))
            if (name := f"{self.document['baseInstanceName']}-{end}") not in used_names:
                return name

    def _later(self, delay: timedelta, call: Callable[[], object]) -> None:
        """Do something after a while, unless the group is gone by then."""

        def due() -> None:
            if self.path in self.compute.resources:
                call()

        self.compute.project.market.timeline.after(delay, due)
