"""Stands in for the three collections of operations: zonal, regional and global, and the list of all.

It does not tell operations of other projects, nor of the whole organisation.
"""

from typing import Any

from everspot_local.gcp.answers import Reply
from everspot_local.gcp.compute.collection import aggregated, paged
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.project import PROJECT
from everspot_local.gcp.router import Handler, Request

Document = dict[str, Any]


def routes(compute: Compute) -> dict[str, Handler]:
    """Return handlers by method id."""
    operations = compute.operations

    def path(request: Request) -> str:
        return f"{compute.scope(request.params)}/operations/{request.params['operation']}"

    def get(request: Request) -> Document:
        return operations.get(path(request))

    def wait(request: Request) -> Document:
        return operations.wait(path(request))

    def listed(request: Request) -> Document:
        scope = compute.scope(request.params)
        folder = f"{scope}/operations"
        answer = {"kind": "compute#operationList", "id": folder, "selfLink": compute.link(folder)}
        return {**answer, **paged(operations.under(scope), request.params)}

    def delete(request: Request) -> Reply:
        operations.delete(path(request))
        return Reply(status=204)

    def everywhere(request: Request) -> Document:
        compute.check_project(request.params)
        entries = [(_path(each), each) for each in operations.under(f"projects/{PROJECT}")]
        return aggregated("operations", "operation", entries, request.params, compute)

    handlers: dict[str, Handler] = {"compute.globalOperations.aggregatedList": everywhere}
    for kind in ("global", "region", "zone"):
        verbs: dict[str, Handler] = {"get": get, "wait": wait, "list": listed, "delete": delete}
        handlers |= {f"compute.{kind}Operations.{verb}": handler for verb, handler in verbs.items()}
    return handlers


def _path(operation: Document) -> str:
    link = str(operation["selfLink"])
    return link[link.index("projects/") :]
