"""Stands in for the calls about regional managed instance groups, and about the groups of instances that they hold.

It offers no zonal groups, no abandoning, stopping or suspending of members, no settings for one of them, and no resize
requests.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from everspot_local.gcp.answers import ApiError, invalid
from everspot_local.gcp.compute.collection import Collection, merged, page_size
from everspot_local.gcp.compute.group_rules import LARGEST, completed
from everspot_local.gcp.compute.groups import ManagedGroup
from everspot_local.gcp.compute.healing import Healing
from everspot_local.gcp.compute.members import GroupMember
from everspot_local.gcp.compute.names import tail
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.operations import Operation
from everspot_local.gcp.router import Handler, Request
from everspot_local.machines.machine import Machine

Document = dict[str, Any]
_AT_ONCE = 1000
"""Discovery document, `regionInstanceGroupManagers.deleteInstances`: "a maximum of 1000 instances"."""
_ACTIONS = (
    "none", "creating", "creatingWithoutRetries", "recreating", "deleting", "abandoning", "restarting", "refreshing",
    "verifying", "stopping", "suspending", "starting", "resuming",
)  # fmt: skip


def routes(compute: Compute) -> dict[str, Handler]:
    """Return handlers by method id, and from now on tell groups when their machines end."""
    compute.project.machines.listeners.append(lambda machine: _ended(compute, machine))
    compute.healing = Healing(compute)
    calls: dict[str, Callable[[Compute, Request], Document]] = {
        "insert": _insert, "patch": _patch, "resize": _resize, "delete": _delete,
        "setInstanceTemplate": _set_template, "listManagedInstances": _managed, "listErrors": _errors,
        "deleteInstances": _delete_instances, "recreateInstances": _recreate,
        "applyUpdatesToInstances": _recreate,
    }  # fmt: skip
    handlers = GROUPS.routes(compute)
    handlers |= {f"compute.regionInstanceGroupManagers.{verb}": _bound(call, compute) for verb, call in calls.items()}
    handlers["compute.instanceGroupManagers.aggregatedList"] = _bound(GROUPS.aggregated, compute)
    handlers["compute.regionInstanceGroups.get"] = _bound(_plain, compute)
    handlers["compute.regionInstanceGroups.listInstances"] = _bound(_plain_instances, compute)
    return handlers


def _bound(call: Callable[[Compute, Request], Document], compute: Compute) -> Handler:
    return lambda request: call(compute, request)


def _ended(compute: Compute, machine: Machine) -> None:
    group = compute.groups.get(machine.fleet or "")
    if group is not None:
        group.ended(machine)


def _once(change: Callable[[Compute, Request], Document]) -> Callable[[Compute, Request], Document]:
    """Carry out a change only once, however often it is requested with the same `requestId`."""

    def call(compute: Compute, request: Request) -> Document:
        repeated = compute.operations.repeated(request.method, request.params)
        return change(compute, request) if repeated is None else repeated.document

    return call


def _group(compute: Compute, request: Request) -> ManagedGroup:
    path = GROUPS.path(compute, request)
    compute.get(path)
    group: ManagedGroup = compute.groups[path]
    return group


@_once
def _insert(compute: Compute, request: Request) -> Document:
    answer = GROUPS.insert(compute, request)
    path = f"{compute.scope(request.params)}/{GROUPS.plural}/{request.body['name']}"
    group = ManagedGroup(compute, path, lambda: _forget(compute, path))
    compute.groups[path] = group
    group.adjust()
    compute.healing.watch(group)
    return answer


def _forget(compute: Compute, path: str) -> None:
    compute.resources.pop(path, None)
    compute.groups.pop(path, None)


@_once
def _patch(compute: Compute, request: Request) -> Document:
    group, body = _group(compute, request), dict(request.body)
    fingerprint = body.get("fingerprint")
    if fingerprint and fingerprint != group.document["fingerprint"]:
        raise ApiError(412, "conditionNotMet", "Fingerprint of the resource does not match.")
    if "versions" not in body and "instanceTemplate" in body:
        body["versions"] = [{"instanceTemplate": body["instanceTemplate"]}]
    for fixed in ("name", "baseInstanceName", "region"):
        if body.get(fixed, group.document.get(fixed)) != group.document.get(fixed):
            raise invalid(f"resource.{fixed}", body[fixed], "It cannot be changed.")
    before = {tail(zone["zone"]) for zone in group.document["distributionPolicy"]["zones"]}
    changed = merged(group.document, body)
    after = completed(compute, compute.scope(request.params), changed)
    if {tail(zone["zone"]) for zone in after["distributionPolicy"]["zones"]} != before:
        raise invalid("resource.distributionPolicy.zones", "", "The zones of a group cannot be changed.")
    return _changed(compute, request, group, after, "compute.instanceGroupManagers.patch")


@_once
def _resize(compute: Compute, request: Request) -> Document:
    group, size = _group(compute, request), int(request.params["size"])
    if not 0 <= size <= LARGEST:
        raise invalid("size", size, f"Must be between 0 and {LARGEST}.")
    after = {**group.document, "targetSize": size}
    return _changed(compute, request, group, after, "compute.instanceGroupManagers.resize")


@_once
def _set_template(compute: Compute, request: Request) -> Document:
    group = _group(compute, request)
    link = request.body.get("instanceTemplate", "")
    after = completed(
        compute, compute.scope(request.params), {**group.document, "versions": [{"instanceTemplate": link}]}
    )
    return _changed(compute, request, group, after, "compute.instanceGroupManagers.setInstanceTemplate")


def _changed(compute: Compute, request: Request, group: ManagedGroup, after: Document, kind: str) -> Document:
    """Finish the operation when the request is accepted, not when the instances exist (Compute API)."""
    document = group.document
    document.clear()
    document.update(after)
    group.adjust()
    compute.healing.watch(group)
    return compute.begun(request, kind, group.path).document


@_once
def _delete(compute: Compute, request: Request) -> Document:
    """Delete a group; it is gone, and the operation done, once all of its instances are gone."""
    group = _group(compute, request)
    compute.check_unused(group.path)
    never = timedelta(seconds=-1)
    operation: Operation = compute.begun(request, "delete", group.path, duration=never)
    compute.project.market.timeline.after(
        compute.project.market.delays.operation, lambda: _end(compute, group, operation)
    )
    return operation.document


def _end(compute: Compute, group: ManagedGroup, operation: Operation) -> None:
    if not group.ending:
        group.end()
    _await_end(compute, group, operation)


def _await_end(compute: Compute, group: ManagedGroup, operation: Operation) -> None:
    if compute.groups.get(group.path) is not group:
        compute.operations.finish(operation)
    else:
        wait = timedelta(seconds=1)
        compute.project.market.timeline.after(wait, lambda: _await_end(compute, group, operation))


@_once
def _delete_instances(compute: Compute, request: Request) -> Document:
    """Delete members, and reduce the size by as many."""
    group = _group(compute, request)
    chosen = _members(group, request, skip=bool(request.body.get("skipInstancesOnValidationError")))
    group.document["targetSize"] = max(0, group.size - len([m for m in chosen if not m.leaving]))
    for member in chosen:
        if not member.leaving:
            group.let_go(member)
    return compute.begun(request, "compute.instanceGroupManagers.deleteInstances", group.path).document


@_once
def _recreate(compute: Compute, request: Request) -> Document:
    group = _group(compute, request)
    everybody = bool(request.body.get("allInstances"))
    for member in group.staying() if everybody else _members(group, request, skip=False):
        if (
            not request.method.endswith("applyUpdatesToInstances")
            or member.template != group.document["instanceTemplate"]
        ):
            member.template = group.document["instanceTemplate"]
            group.recreate(member)
    kind = f"compute.instanceGroupManagers.{request.method.rpartition('.')[2]}"
    return compute.begun(request, kind, group.path).document


def _members(group: ManagedGroup, request: Request, *, skip: bool) -> list[GroupMember]:
    """Return the members that a request names. An unknown name fails the whole request, unless `skip` is set."""
    links = request.body.get("instances", ())
    if not 1 <= len(links) <= _AT_ONCE:
        raise invalid("instances", "", f"There can be 1 to {_AT_ONCE} instances in a request.")
    by_name = {(member.zone, member.name): member for member in group.members}
    members = []
    for link in links:
        parts = str(link).split("/")
        member = by_name.get((parts[-3], parts[-1])) if len(parts) >= 4 else None
        if member is not None:
            members.append(member)
        elif not skip:
            raise invalid("instances", link, "The instance is not a member of the instance group.")
    return members


def _managed(compute: Compute, request: Request) -> Document:
    group = _group(compute, request)
    members = [_member(compute, group, member) for member in group.members]
    if group.document["listManagedInstancesResults"] == "PAGELESS":
        return {"managedInstances": members}
    # Discovery document, `listManagedInstances`: only groups with this setting are paginated.
    size, first = page_size(request.params), int(request.params.get("pageToken", "0") or 0)
    page: Document = {"managedInstances": members[first : first + size]}
    return {**page, **({"nextPageToken": str(first + size)} if first + size < len(members) else {})}


def _member(compute: Compute, group: ManagedGroup, member: GroupMember) -> Document:
    zone = member.zone or tail(group.document["distributionPolicy"]["zones"][0]["zone"])
    vm = member.vm if member.vm is not None and compute.vms.get(member.vm.path) is member.vm else None
    document: Document = {
        "instance": compute.link(f"projects/{compute.name}/zones/{zone}/instances/{member.name}"),
        "name": member.name,
        "currentAction": member.action,
        "targetStatus": "DELETED" if member.leaving else "RUNNING",
        "version": {"instanceTemplate": member.template or group.document["instanceTemplate"]},
    }
    if vm is not None:
        document |= {"id": vm.machine.id, "instanceStatus": vm.status}
        if group.document.get("instanceFlexibilityPolicy"):
            document["propertiesFromFlexibilityPolicy"] = {"machineType": member.machine_type}
    if member.failed:
        errors = [{"code": f.code, "message": f.message, "errorDetails": f.details} for f in member.failed]
        document["lastAttempt"] = {"errors": {"errors": errors}}
    policies = group.document["autoHealingPolicies"]
    if policies and vm is not None:
        state = "UNKNOWN" if member.healthy is None else "HEALTHY" if member.healthy else "UNHEALTHY"
        document["instanceHealth"] = [{"healthCheck": policies[0]["healthCheck"], "detailedHealthState": state}]
    return document


def _errors(compute: Compute, request: Request) -> Document:
    return {"items": list(reversed(_group(compute, request).errors))}


def _plain(compute: Compute, request: Request) -> Document:
    """Return the group of instances that a managed group holds."""
    path = f"{compute.scope(request.params)}/{GROUPS.plural}/{request.params['instanceGroup']}"
    document = compute.get(path)
    identity = {"kind": "compute#instanceGroup", "id": document["id"], "name": document["name"]}
    alive = sum(member.vm is not None for member in compute.groups[path].members)
    shared = {"creationTimestamp": document["creationTimestamp"], "region": document["region"]}
    return {
        **identity,
        **shared,
        "size": alive,
        "selfLink": document["instanceGroup"],
        "fingerprint": document["fingerprint"],
    }


def _plain_instances(compute: Compute, request: Request) -> Document:
    path = f"{compute.scope(request.params)}/{GROUPS.plural}/{request.params['instanceGroup']}"
    compute.get(path)
    vms = [m.vm for m in compute.groups[path].members if m.vm is not None and m.vm.path in compute.vms]
    state_filter = request.body.get("instanceState", "ALL")
    items = [{"instance": compute.link(vm.path), "status": vm.status} for vm in vms]
    return {"kind": "compute#regionInstanceGroupsListInstances",
            "items": [item for item in items if state_filter == "ALL" or item["status"] == "RUNNING"]}  # fmt: skip


def _shown(compute: Compute, path: str, document: Document) -> Document:
    """Return a group with its current actions."""
    group: ManagedGroup = compute.groups[path]
    actions = dict.fromkeys(_ACTIONS, 0)
    for member in group.members:
        actions[_camel(member.action)] += 1
    reached = all(m.template == document["instanceTemplate"] for m in group.staying() if m.vm is not None)
    status: Mapping[str, Any] = {
        "isStable": group.is_stable(), "versionTarget": {"isReached": reached},
        "allInstancesConfig": {"effective": True}, "stateful": {"hasStatefulConfig": False},
    }  # fmt: skip
    return {**document, "currentActions": actions, "status": status}


def _camel(action: str) -> str:
    head, *tail = action.lower().split("_")
    return head + "".join(part.capitalize() for part in tail)


GROUPS = Collection(
    "instanceGroupManagers", "regionInstanceGroupManagers", "instanceGroupManager", "instanceGroupManager", completed,
    show=_shown, verbs=("get", "list", "insert"),
)  # fmt: skip
