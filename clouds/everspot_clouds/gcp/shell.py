"""Access to an instance through Identity-Aware Proxy: command lines of gcloud.

Sources: gcloud reference, `compute ssh` (--tunnel-through-iap, --command) and `compute start-iap-tunnel`
(--local-host-port); IAP documentation, "Using IAP for TCP forwarding": the firewall has to let 35.235.240.0/20 in.
"""

from collections.abc import Callable, Mapping
from ipaddress import IPv4Network
from typing import Any

from everspot_clouds.base import CloudError, Handover, NotOffered, Trouble
from everspot_clouds.gcp.instances import last
from everspot_clouds.gcp.rules import DOOR_TAG

_LOOPBACK = str(IPv4Network("127.0.0.0/8")[1])
_INSTALL = "gcloud is part of the Google Cloud SDK: https://cloud.google.com/sdk/docs/install"
_SSH_FAILED = 255
"""OpenSSH's exit code for its own failures, which gcloud passes on (ssh(1), "EXIT STATUS"). gcloud's own errors name
the permission that is missing."""
_DENIED = (
    "may you use the tunnel and become the jobs' user (roles/iap.tunnelResourceAccessor, roles/compute.osAdminLogin, "
    "and roles/iam.serviceAccountUser on the agents' account, which OS Login asks for)?"
)


class IapTunnel:
    """See `everspot_clouds.base.RemoteAccess`. `find`: the instances of the cluster, in the form of the API."""

    def __init__(self, project: str, find: Callable[[], list[dict[str, Any]]]) -> None:
        self._project, self._find = project, find

    def enter(self, instance_id: str, command: str) -> Handover:
        """See `RemoteAccess`.

        Raises:
            NotOffered: if the cluster's instances do not allow it.
            CloudError: if there is no such instance, or the cloud does not answer.
        """
        instance = self._instance(instance_id)
        arguments = ("ssh", instance["name"], *self._where(instance), "--tunnel-through-iap")
        return self._gcloud(*arguments, "--command", command, "--", "-t")

    def forward(self, instance_id: str, port: int, local: int) -> Handover:
        """See `RemoteAccess`. Raises as `enter` does."""
        instance = self._instance(instance_id)
        arguments = ("ssh", instance["name"], *self._where(instance), "--tunnel-through-iap")
        return self._gcloud(*arguments, "--", "-N", "-L", f"{_LOOPBACK}:{local}:{_LOOPBACK}:{port}")

    def _instance(self, instance_id: str) -> Mapping[str, Any]:
        instance = next((raw for raw in self._find() if str(raw.get("id")) == instance_id), None)
        if instance is None:
            raise CloudError(f"{instance_id} is no instance of this cluster, or not any more", Trouble.REQUEST)
        if DOOR_TAG not in ((instance.get("tags") or {}).get("items") or ()):
            raise NotOffered("the cluster's instances are closed to people: set `iapSsh: true` and run pulumi up")
        return instance

    def _where(self, instance: Mapping[str, Any]) -> tuple[str, ...]:
        return "--zone", last(instance["zone"]), "--project", self._project

    def _gcloud(self, *words: str) -> Handover:
        return Handover(
            command=("gcloud", "compute", *words),
            needs=(("gcloud", "the gcloud CLI"),),
            install=_INSTALL,
            denied=_DENIED,
            failure_codes=(_SSH_FAILED,),
        )
