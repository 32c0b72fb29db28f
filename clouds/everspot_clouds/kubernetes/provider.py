"""The parts of the Kubernetes adapter, over that of AWS, whose machines the nodes are.

Each is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

from everspot_clouds.aws.provider import AwsProvider

if TYPE_CHECKING:
    from everspot_core.clock import Clock
    from everspot_core.cluster.manifest import Manifest

    from everspot_clouds.base import Metadata, Provider, RemoteAccess, Site


_OWN_MODULES = ("checks", "cloud", "rules")
"""The modules of the package that are used in place of AWS's."""


class KubernetesProvider(AwsProvider):
    """See `everspot_clouds.base.Provider`. Prices, secrets, the store's credentials and invoicing are AWS's."""

    def _part(self, module: str, name: str) -> Any:
        if module not in _OWN_MODULES:
            return super()._part(module, name)
        return getattr(import_module(f"everspot_clouds.kubernetes.{module}"), name)

    def metadata(self, clock: Clock, getenv: Callable[[str], str | None]) -> Metadata:
        """See `Provider`."""
        from everspot_clouds.kubernetes.metadata import PodMetadata

        return PodMetadata(clock, getenv)

    def errors(self) -> tuple[type[Exception], ...]:
        """See `Provider`."""
        from everspot_clouds.base import CloudError, StillPending
        from everspot_clouds.kubernetes.errors import ERRORS

        return (*super().errors(), *ERRORS, StillPending, CloudError)

    def notice(self, manifest: Manifest) -> timedelta:
        """See `Provider`: the pods' grace period, because Karpenter evicts as soon as it hears of EC2's notice."""
        from everspot_clouds.kubernetes.rules import DEFAULT_GRACE

        return manifest.notice or DEFAULT_GRACE

    def site(self, manifest: Manifest) -> Site:
        """See `Provider`."""
        from everspot_clouds.kubernetes.site import KubernetesSite

        return KubernetesSite(manifest)

    def remote_access(self, manifest: Manifest) -> RemoteAccess:
        """See `Provider`."""
        from everspot_clouds.kubernetes.rules import declared_namespace
        from everspot_clouds.kubernetes.shell import Kubectl

        return Kubectl(declared_namespace(manifest) or "")


PROVIDER: Provider = KubernetesProvider()
