"""One instance of a managed group as the group knows it: existing, to be created, or to be deleted."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from everspot_local.gcp.compute.vms import Vm
from everspot_local.gcp.operations import OperationFailed


@dataclass(eq=False)
class GroupMember:
    """One instance of a group, which exists or will be created.

    Attributes:
        action: current action, as the API shows it.
        template: template of its creation.
    """

    name: str
    action: str = "CREATING"
    zone: str = ""
    machine_type: str = ""
    template: str = ""
    vm: Vm | None = None
    failed: list[OperationFailed] = field(default_factory=list)
    unhealthy: int = 0
    healthy: bool | None = None

    @property
    def leaving(self) -> bool:
        """Return whether the member is being deleted."""
        return self.action == "DELETING"

    @property
    def running(self) -> bool:
        """Return whether the member's instance runs."""
        return self.vm is not None and self.vm.status == "RUNNING"


def without_repeats(problems: Iterable[OperationFailed]) -> list[OperationFailed]:
    """Return each problem once."""
    return list({(problem.code, problem.message): problem for problem in problems}.values())
