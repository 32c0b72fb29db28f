"""Stands in for the calls about instances: create, describe, label and delete them, and simulate maintenance.

It does not start, stop, reset, suspend or resize one.
"""

from datetime import timedelta
from typing import Any

from everspot_core.jobs.records import Market

from everspot_local.gcp.answers import ApiError, invalid, missing, required
from everspot_local.gcp.compute.collection import Collection, merged
from everspot_local.gcp.compute.launching import launch
from everspot_local.gcp.compute.names import check_labels
from everspot_local.gcp.compute.properties import check_metadata
from everspot_local.gcp.compute.state import Compute, fingerprint
from everspot_local.gcp.router import Handler, Request

Document = dict[str, Any]
NEVER = timedelta(seconds=-1)
"""The duration of operations that end when their instance has changed, whenever that is."""


def routes(compute: Compute) -> dict[str, Handler]:
    """Return handlers by method id."""
    calls = {
        "insert": _insert, "delete": _delete, "setLabels": _set_labels, "setMetadata": _set_metadata,
        "setDeletionProtection": _protect, "simulateMaintenanceEvent": _maintain,
        "getSerialPortOutput": _console,
    }  # fmt: skip
    handlers = INSTANCES.routes(compute)
    return handlers | {f"compute.instances.{verb}": _bound(call, compute) for verb, call in calls.items()}


def _bound(call: Any, compute: Compute) -> Handler:
    return lambda request: call(compute, request)


def template_properties(compute: Compute, link: str, field: str) -> Document:
    """Return the properties of the template that a request names.

    Raises:
        ApiError: if the instance does not exist.
    """
    return dict(compute.get(compute.referred(link, "instanceTemplates", field))["properties"])


def _insert(compute: Compute, request: Request) -> Document:
    if (repeated := compute.operations.repeated(request.method, request.params)) is not None:
        return repeated.document
    zone = compute.scope(request.params).rpartition("/")[2]
    properties = dict(request.body)
    if request.params.get("sourceMachineImage"):
        raise ApiError(501, "notImplemented", "The local cloud does not offer machine images.")
    if link := request.params.get("sourceInstanceTemplate"):
        properties = merged(template_properties(compute, link, "sourceInstanceTemplate"), properties)
    if not properties.get("name"):
        raise required("resource.name")
    operation, _ = launch(compute, zone, properties["name"], properties, request.caller.email)
    compute.operations.remember(request.method, request.params, operation)
    return operation.document


def _delete(compute: Compute, request: Request) -> Document:
    if (repeated := compute.operations.repeated(request.method, request.params)) is not None:
        return repeated.document
    path = INSTANCES.path(compute, request)
    instance = compute.get(path)
    if instance.get("deletionProtection"):
        raise ApiError(
            400, "invalidResourceUsage", "Invalid resource usage: 'Resource cannot be deleted if it's protected "
            "against deletion. Disable deletion protection before deleting the resource.'.",
        )  # fmt: skip
    operation = compute.begun(request, "delete", path, duration=NEVER)
    compute.vms[path].delete(operation)
    return operation.document


def _set_labels(compute: Compute, request: Request) -> Document:
    path = INSTANCES.path(compute, request)
    instance = compute.get(path)
    check_labels(request.body.get("labels"), "labels")
    _check_fingerprint(request.body.get("labelFingerprint"), instance.get("labels"), "Labels")
    instance["labels"] = dict(request.body.get("labels", {}))
    return compute.begun(request, "setLabels", path).document


def _set_metadata(compute: Compute, request: Request) -> Document:
    path = INSTANCES.path(compute, request)
    instance = compute.get(path)
    metadata = {"items": request.body.get("items", [])}
    check_metadata(metadata, "metadata")
    if request.body.get("fingerprint") != instance["metadata"]["fingerprint"]:
        raise _stale("Supplied fingerprint does not match current metadata fingerprint.")
    instance["metadata"] = {"kind": "compute#metadata", **metadata, "fingerprint": fingerprint((path, metadata))}
    compute.project.metadata.changed(instance["id"])
    return compute.begun(request, "setMetadata", path).document


def _protect(compute: Compute, request: Request) -> Document:
    path = f"{compute.scope(request.params)}/instances/{request.params['resource']}"
    compute.get(path)["deletionProtection"] = request.params.get("deletionProtection", True)
    return compute.begun(request, "setDeletionProtection", path).document


def _maintain(compute: Compute, request: Request) -> Document:
    """Simulate maintenance, which preempts a Spot instance; as met:
    https://github.com/cloudpilot-ai/karpenter-provider-gcp/issues/295."""
    path = INSTANCES.path(compute, request)
    compute.get(path)
    machine = compute.vms[path].machine
    if not machine.alive:
        raise ApiError(400, "resourceNotReady", f"The resource '{path}' is not ready")
    if machine.market is not Market.SPOT:
        raise ApiError(501, "notImplemented", "The local cloud does not offer maintenance of standard instances.")
    compute.project.machines.notice(machine)
    return compute.begun(request, "compute.instances.simulateMaintenanceEvent", path).document


def _console(compute: Compute, request: Request) -> Document:
    """Return the output of the instance's programs, on the first port."""
    path = INSTANCES.path(compute, request)
    if request.params.get("port", 1) != 1:
        raise invalid("port", request.params["port"], "The local cloud has the first serial port alone.")
    instance, start = compute.get(path), int(request.params.get("start", 0))
    log = compute.project.machines.processes.folder(instance["id"]) / "console.log"
    text = log.read_bytes() if log.is_file() else b""
    document = {"kind": "compute#serialPortOutput", "contents": text[start:].decode(errors="replace")}
    return {**document, "start": str(min(start, len(text))), "next": str(len(text)), "selfLink": instance["selfLink"]}


def _check_fingerprint(supplied: str | None, value: Any, subject: str) -> None:
    """Refuse a stale fingerprint with 412 conditionNotMet (Compute API, `labelFingerprint`)."""
    if supplied != fingerprint(value):
        raise _stale(f"{subject} fingerprint either invalid or resource labels have changed")


def _stale(message: str) -> ApiError:
    return ApiError(412, "conditionNotMet", message)


def _nothing(_compute: Compute, scope: str, _body: Document) -> Document:
    raise missing(scope)  # instances are made by `launch`


def _show(compute: Compute, path: str, _document: Document) -> Document:
    document: Document = compute.vms[path].shown()
    return document


INSTANCES = Collection(
    "instances", "instances", "instance", "instance", _nothing, show=_show, verbs=("get", "list", "aggregatedList"),
)  # fmt: skip
