"""Access to an instance through the API server: command lines of kubectl.

Source: kubectl reference, `exec` and `port-forward`.
"""

from everspot_clouds.base import Handover
from everspot_clouds.kubernetes.rules import AGENT_CONTAINER

_INSTALL = "https://kubernetes.io/docs/tasks/tools"


class Kubectl:
    """See `everspot_clouds.base.RemoteAccess`. The pods are those of the current context's namespace."""

    def enter(self, instance_id: str, command: str) -> Handover:
        """See `RemoteAccess`."""
        return _handover("exec", "-it", instance_id, "-c", AGENT_CONTAINER, "--", "sh", "-c", command)

    def forward(self, instance_id: str, port: int, local: int) -> Handover:
        """See `RemoteAccess`."""
        return _handover("port-forward", f"pod/{instance_id}", f"{local}:{port}")


def _handover(action: str, *arguments: str) -> Handover:
    return Handover(
        command=("kubectl", action, *arguments),
        needs=(("kubectl", "kubectl"),),
        install=f"kubectl is one program: {_INSTALL}",
        denied=f"may you create pods/{action.replace('-', '')} in the namespace, and is it the current context's?",
    )
