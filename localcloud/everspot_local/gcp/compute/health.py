"""Stands in for health checks, global and regional, as validated records; groups that use one do the checking.

It offers checks by HTTP and TCP.
"""

from typing import Any

from everspot_local.gcp.answers import invalid, not_here, required
from everspot_local.gcp.compute.collection import Collection
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.router import Handler

Document = dict[str, Any]
_KINDS = {"HTTP": "httpHealthCheck", "TCP": "tcpHealthCheck"}


def routes(compute: Compute) -> dict[str, Handler]:
    """Return handlers by method id."""
    return {
        **GLOBAL.routes(compute),
        **REGIONAL.routes(compute),
        "compute.healthChecks.update": lambda request: GLOBAL.replace(compute, request),
        "compute.regionHealthChecks.update": lambda request: REGIONAL.replace(compute, request),
    }


def _check(_compute: Compute, _scope: str, body: Document) -> Document:
    kind = body.get("type")
    if not kind:
        raise required("resource.type")
    if kind not in _KINDS:
        raise not_here(f"health checks of type {kind}")
    if wrong := [name for other, name in _KINDS.items() if other != kind and name in body]:
        raise invalid(f"resource.{wrong[0]}", "", f"It does not fit a health check of type {kind}.")
    whole: Document = {
        "checkIntervalSec": 5, "timeoutSec": 5, "healthyThreshold": 2, "unhealthyThreshold": 2,
        "logConfig": {"enable": False}, **body,
    }  # fmt: skip
    if whole["timeoutSec"] > whole["checkIntervalSec"]:
        # API reference, healthChecks: "It is invalid for timeoutSec to have greater value than checkIntervalSec".
        message = "timeoutSec must not be greater than checkIntervalSec."
        raise invalid("resource.timeoutSec", whole["timeoutSec"], message)
    for name, low, high in (
        ("checkIntervalSec", 1, 300),
        ("timeoutSec", 1, 300),
        ("healthyThreshold", 1, 10),
        ("unhealthyThreshold", 1, 10),
    ):
        if not low <= whole[name] <= high:
            raise invalid(f"resource.{name}", whole[name], f"Must be between {low} and {high}.")
    return {**whole, _KINDS[kind]: _how(kind, body.get(_KINDS[kind], {}))}


def _how(kind: str, settings: Document) -> Document:
    usual = {"proxyHeader": "NONE", "port": 80, **({"requestPath": "/"} if kind == "HTTP" else {})}
    if not 1 <= int(settings.get("port", 80)) <= 65535:
        raise invalid(f"resource.{_KINDS[kind]}.port", settings["port"], "Must be between 1 and 65535.")
    return {**usual, **settings}


_VERBS = ("get", "list", "insert", "patch", "delete")
GLOBAL = Collection("healthChecks", "healthChecks", "healthCheck", "healthCheck", _check, verbs=_VERBS)
REGIONAL = Collection("healthChecks", "regionHealthChecks", "healthCheck", "healthCheck", _check, verbs=_VERBS)
