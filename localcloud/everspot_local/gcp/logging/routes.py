"""Stands in for the Logging API: sinks of the project. Entries are neither written nor read by it."""

from collections.abc import Mapping
from typing import Any

from everspot_local.gcp.answers import not_here
from everspot_local.gcp.logging.sinks import Sinks
from everspot_local.gcp.router import Handler, Request

Document = dict[str, Any]
_SINKS = "logging.projects.sinks"


def routes(sinks: Sinks) -> Mapping[str, Handler]:
    """Return handlers by method id."""

    def create(request: Request) -> Document:
        return sinks.create(request.body, unique=_unique(request))

    def delete(request: Request) -> Document:
        sinks.delete(_name(request))
        return {}

    def update(request: Request) -> Document:
        mask = {name.strip() for name in str(request.params.get("updateMask") or "").split(",") if name.strip()}
        return sinks.update(_name(request), request.body, mask, unique=_unique(request))

    return {
        f"{_SINKS}.create": create,
        f"{_SINKS}.delete": delete,
        f"{_SINKS}.get": lambda r: sinks.get(_name(r)),
        f"{_SINKS}.list": lambda _r: {"sinks": sinks.all()},
        f"{_SINKS}.patch": update,
        f"{_SINKS}.update": update,
    }


def _name(request: Request) -> str:
    return str(request.params["sinkName"]).rpartition("/")[2]


def _unique(request: Request) -> bool:
    if request.params.get("customWriterIdentity"):
        raise not_here("writers of sinks that are user-managed")
    return bool(request.params.get("uniqueWriterIdentity"))
