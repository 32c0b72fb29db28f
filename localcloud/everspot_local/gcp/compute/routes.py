"""Collects all methods of Compute Engine that the local cloud has."""

from everspot_local.gcp.compute import (
    advice,
    bulk,
    disks,
    group_calls,
    health,
    images,
    instances,
    networks,
    operation_calls,
    places,
    templates,
)
from everspot_local.gcp.compute.quotas import QuotaDesk
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.router import Handler


def routes(compute: Compute) -> dict[str, Handler]:
    """Return handlers by method id, and from now on hold instances to the quotas."""
    QuotaDesk(compute)
    return {
        **operation_calls.routes(compute),
        **places.routes(compute),
        **networks.routes(compute),
        **health.routes(compute),
        **images.routes(compute),
        **templates.routes(compute),
        **instances.routes(compute),
        **disks.routes(compute),
        **bulk.routes(compute),
        **advice.routes(compute),
        **group_calls.routes(compute),
    }
