"""Access to an instance through the API server: command lines of kubectl.

Source: kubectl reference, `exec` and `port-forward`.
"""

from everspot_clouds.base import Handover
from everspot_clouds.kubernetes.rules import AGENT_CONTAINER

_INSTALL = "https://kubernetes.io/docs/tasks/tools"


class Kubectl:
    """See `everspot_clouds.base.RemoteAccess`, by the current context of the kubeconfig.

    Args:
        namespace: The cluster's; empty for that of the context.
    """

    def __init__(self, namespace: str = "") -> None:
        self._namespace = namespace

    def enter(self, instance_id: str, command: str) -> Handover:
        """See `RemoteAccess`."""
        return self._hand_over("exec", "-it", instance_id, "-c", AGENT_CONTAINER, "--", "sh", "-c", command)

    def forward(self, instance_id: str, port: int, local: int) -> Handover:
        """See `RemoteAccess`."""
        return self._hand_over("port-forward", f"pod/{instance_id}", f"{local}:{port}")

    def _hand_over(self, action: str, *arguments: str) -> Handover:
        place = ("-n", self._namespace) if self._namespace else ()
        return Handover(
            command=("kubectl", action, *place, *arguments),
            needs=(("kubectl", "kubectl"),),
            install=f"kubectl is one program: {_INSTALL}",
            denied=f"if kubectl refused it: may you create pods/{action.replace('-', '')} in the namespace, and is the "
            "context its cluster's?",
            failure_codes=(1,),
        )
