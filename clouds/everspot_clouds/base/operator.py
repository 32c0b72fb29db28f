"""The cloud's functions for the `everspot` command and its user: checks, access to an instance, the remaining resources
of a cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from everspot_core.cluster.checks import Check, Verdict

if TYPE_CHECKING:
    from everspot_core.capacity.market import Market


def image_check(detail: str) -> Check:
    """Return the failed check of a machine image from which nothing can start. `detail`: which, and why."""
    fix = (
        "bake or name another image (imageId, imageParameter, imageFamily) and run pulumi up: until then nothing new "
        "starts, and what runs goes on"
    )
    return Check("user", "image", Verdict.FAIL, detail, fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """A program of the cloud that replaces this process. `needs`: programs that have to be installed, with their names
    for people; `install`: how to install them; `denied`: the likely cause if it fails; `failure_codes`: exit codes by
    which it says so, while all others are those of the command that it runs. Empty: it passes none of these on."""

    command: tuple[str, ...]
    needs: tuple[tuple[str, str], ...]
    install: str
    denied: str
    failure_codes: tuple[int, ...] = ()


class RemoteAccess(Protocol):
    """Access to instances, for a person."""

    def enter(self, instance_id: str, command: str) -> Handover:
        """Run a command line on an instance, in a terminal."""
        ...

    def forward(self, instance_id: str, port: int, local: int) -> Handover:
        """Forward a port of an instance to this machine."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingResource:
    """A resource of a cluster that its cloud still has.

    Attributes:
        kind: For people, such as `fleet`.
        name: The cloud's name of it.
        detail: For people.
        launched: Whether a scheduler launched it.
        ending: Whether it will disappear by itself, or with the resource that it belongs to.
        capacity: Whether it is an instance, or keeps instances running.
        retained: Whether it stays on purpose, such as a bucket with checkpoints.
        part_of: The fleet or group that an instance belongs to; empty if it belongs to none.
        role: Of an instance: agent or scheduler.
        instance_type: Of an instance that runs; empty of anything else.
        zone: Of an instance.
        market: Of an instance.
        vm_name: Of an instance, if its cloud's commands know it by another name.
        usd_per_hour: The list price of anything but an instance; None if it is not known.
        by_hand: Whether `down` leaves it to a person, since it has data or encrypts some.
        unmarked: Whether it lacks the mark of the cluster's store, so that it may belong to another cluster of the same
            name. `down` leaves it to a person too, unless the stack has it.
    """

    kind: str
    name: str
    detail: str = ""
    launched: bool = False
    ending: bool = False
    retained: bool = False
    capacity: bool = False
    part_of: str = ""
    role: str = ""
    instance_type: str = ""
    zone: str = ""
    market: Market | None = None
    vm_name: str = ""
    usd_per_hour: float | None = 0.0
    by_hand: bool = False
    unmarked: bool = False

    def is_declared(self, stack_ids: Collection[str]) -> bool:
        """Return whether a stack with resources of these ids has it, or the fleet or group that it belongs to."""
        return self.name in stack_ids or self.part_of in stack_ids

    def is_of_unknown_owner(self, stack_ids: Collection[str]) -> bool:
        """Return whether it may belong to another cluster of the same name. `stack_ids`: of the cluster's stack."""
        return self.unmarked and not self.is_declared(stack_ids)


class Site(Protocol):
    """The resources of a cluster in its cloud, for taking it down. Methods that ask the cloud raise `CloudError`."""

    def remaining(self) -> list[RemainingResource]:
        """Return everything that costs money, found by the cluster's name and not by any record."""
        ...

    def list_unbilled(self) -> list[RemainingResource]:
        """Launch templates and whatever else of the cluster costs nothing."""
        ...

    def list_other_services(self) -> list[RemainingResource]:
        """Return the cluster's resources in services other than that of instances: queues, topics, buckets, keys."""
        ...

    def end(self, instances: Iterable[str]) -> None:
        """Terminate instances of the cluster now, with the user's credentials."""
        ...

    def remove(self, resources: Iterable[RemainingResource]) -> None:
        """Delete resources of the cluster now, with their instances and with the user's credentials. A resource that is
        already gone is no failure."""
        ...

    def removal(self, resource: RemainingResource) -> str:
        """Return the cloud's own command that removes a resource."""
        ...
