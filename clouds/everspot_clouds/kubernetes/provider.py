"""The parts of the Kubernetes adapter, over that of AWS, whose machines the nodes are.

Each is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from everspot_clouds.aws.provider import AwsProvider
from everspot_clouds.base import NotOffered

if TYPE_CHECKING:
    from everspot_core.capacity.catalogue import Catalogue
    from everspot_core.clock import Clock
    from everspot_core.cluster.checks import Check
    from everspot_core.cluster.manifest import Manifest
    from everspot_core.costs.billing import BillingRules
    from everspot_store import Store

    from everspot_clouds.base import Cloud, Door, Metadata, Provider, Site


class KubernetesProvider(AwsProvider):
    """See `everspot_clouds.base.Provider`. Prices, secrets, the store's credentials and invoicing are AWS's."""

    def metadata(self, clock: Clock, getenv: Callable[[str], str | None]) -> Metadata:
        """See `Provider`."""
        from everspot_clouds.kubernetes.metadata import PodMetadata

        return PodMetadata(clock, getenv)

    def scheduling(self, manifest: Manifest, store: Store) -> Cloud:
        """See `Provider`. Raises `CloudError` if there is no way to an API server."""
        from everspot_clouds.kubernetes.cloud import CLOUD

        return CLOUD.open(manifest, store.clock)

    def reading(self, manifest: Manifest, clock: Clock) -> Cloud | None:
        """See `Provider`. Raises `CloudError` if there is no way to an API server."""
        from everspot_clouds.kubernetes.cloud import CLOUD

        return CLOUD.open(manifest, clock, reads=True)

    def errors(self) -> tuple[type[Exception], ...]:
        """See `Provider`."""
        from everspot_clouds.base import CloudError
        from everspot_clouds.kubernetes.errors import ERRORS, StillPending

        return (*super().errors(), *ERRORS, StillPending, CloudError)

    @property
    def billing(self) -> BillingRules:
        """See `Provider`."""
        from everspot_clouds.kubernetes.rules import BILLING

        return BILLING

    def notice(self, manifest: Manifest) -> timedelta:
        """See `Provider`: the pods' grace period, because Karpenter evicts as soon as it hears of EC2's notice."""
        from everspot_clouds.kubernetes.rules import DEFAULT_GRACE

        return manifest.notice or DEFAULT_GRACE

    def checks(self, region: str | None, manifest: Manifest | None, catalogue: Catalogue, clock: Clock) -> list[Check]:
        """See `Provider`."""
        from everspot_clouds.kubernetes.checks import cloud_checks

        return cloud_checks(region, manifest, catalogue, clock)

    def site(self, manifest: Manifest) -> Site:
        """See `Provider`.

        Raises:
            NotOffered: always. The pods of a cluster end with kubectl, and their nodes by Karpenter.
        """
        labels = f"everspot/cluster={manifest.cluster}"
        raise NotOffered(f"pods end with kubectl: kubectl delete pods -l {labels}; Karpenter ends the nodes")

    def door(self, manifest: Manifest) -> Door:
        """See `Provider`."""
        from everspot_clouds.kubernetes.shell import Kubectl

        return Kubectl()


PROVIDER: Provider = KubernetesProvider()
