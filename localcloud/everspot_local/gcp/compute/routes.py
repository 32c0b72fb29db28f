"""All methods of Compute Engine that the local cloud has: a line for each part."""

from everspot_local.gcp.compute import networks, operation_calls
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.router import Handler


def routes(compute: Compute) -> dict[str, Handler]:
    """Return handlers by method id."""
    return {
        **operation_calls.routes(compute),
        **networks.routes(compute),
    }
