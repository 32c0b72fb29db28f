"""The machines of declared Google Cloud resources, and the cost of each besides its price."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from everspot_core.capacity.allocation import Prefer
from everspot_core.capacity.catalogue import zone_region
from everspot_core.capacity.market import Market
from everspot_core.cluster.declared import DeclaredResource, unknown
from everspot_core.estimate.requested import ElasticRequest, Extra, StandingRequest, TypeOption

from everspot_clouds.costing import TEAM, Costing, choices, items, list_markets, nearest, number, part, read_team, texts
from everspot_clouds.gcp import fixed_prices as fixed
from everspot_clouds.gcp.labels import label_key
from everspot_clouds.gcp.machines import type_name
from everspot_clouds.gcp.rules import ROLE_LABEL

TEMPLATES = (
    "gcp:compute/regionInstanceTemplate:RegionInstanceTemplate",
    "gcp:compute/instanceTemplate:InstanceTemplate",
)


def team_by_labels(labels: Any) -> str:
    """Return the team that labels name."""
    return read_team({TEAM: labels.get(label_key(TEAM))} if isinstance(labels, Mapping) else None)


def group(templates: Sequence[DeclaredResource], costing: Costing, resource: DeclaredResource) -> None:
    """A managed instance group, at its target size. Labels and market are its template's."""
    inputs, template = resource.inputs, nearest(resource, templates)
    size, region = number(inputs.get("targetSize")), _region(resource) or costing.region
    if size is None or template is None or region is None:
        return costing.note_unknown_cost(
            resource, "its size, its template or its region is not known before the update"
        )
    candidates = _candidates(inputs.get("instanceFlexibilityPolicy"), template.inputs)
    if not candidates:
        return costing.note_unknown_cost(resource, "its machine types are not known before the update")
    if size == 0:
        return None
    scheduling = template.inputs.get("scheduling")
    spot = part(scheduling, "provisioningModel") == "SPOT" or bool(part(scheduling, "preemptible"))
    labels = template.inputs.get("labels")
    costing.standing.append(
        StandingRequest(
            name=resource.name,
            team=team_by_labels(labels),
            region=region,
            market=Market.SPOT if spot else Market.ON_DEMAND,
            units=size,
            candidates=candidates,
            zones=texts(inputs.get("distributionPolicyZones")),
            prefer=Prefer.ORDER,  # lower ranks are tried first
            extras=_extras(costing, template, spot=spot),
            agents=part(labels, ROLE_LABEL) != "scheduler",
        )
    )
    return None


def _region(resource: DeclaredResource) -> str | None:
    stated = resource.inputs.get("region")
    if isinstance(stated, str) and not unknown(stated):
        return stated.rpartition("/")[2]
    try:
        return zone_region(str(resource.inputs.get("zone") or ""))
    except ValueError:
        return None


def _candidates(policy: Any, template: Mapping[str, Any]) -> tuple[TypeOption, ...]:
    """Return the machine types of a flexibility policy with their ranks; without one, the template's own."""
    options = [
        TypeOption(instance_type=name, priority=float(number(selection.get("rank")) or 0))
        for selection in items(part(policy, "instanceSelections"))
        for name in texts(selection.get("machineTypes"))
    ]
    machine = template.get("machineType")
    if options or machine is None or unknown(machine):
        return tuple(options)
    gpu, count = (part(template, "guestAccelerators", key) for key in ("type", "count"))
    name = type_name(str(machine), str(gpu or "").rpartition("/")[2], int(number(count) or 0))
    return (TypeOption(instance_type=name),)


def _extras(costing: Costing, template: DeclaredResource, *, spot: bool) -> tuple[Extra, ...]:
    """Return the disks and the external addresses of each machine. `spot`: none of them is on-demand."""
    addresses = _addresses(costing, template)
    extras = []
    if addresses:
        each = costing.rate(fixed.SPOT_ADDRESS if spot else fixed.ADDRESS)
        public = Extra(
            kind="public addresses",
            usd_per_month=addresses * each.usd_per_month,
            on_demand=addresses * costing.rate(fixed.ADDRESS).usd_per_month,
        )
        extras.append(public)
    usd = Fraction(0)
    for disk in items(template.inputs.get("disks")):
        gib, kind = number(part(disk, "diskSizeGb")), part(disk, "diskType") or "pd-standard"
        if gib is None:
            costing.note_unknown_part(template, "the size of its disks is not known: they are not counted")
        elif kind not in fixed.DISK_GIB:
            costing.note_unknown_part(template, f"disks of type {kind} have no price here: they are not counted")
        else:
            usd += gib * costing.rate(fixed.DISK_GIB[kind]).usd_per_month
    return (Extra(kind="volumes", usd_per_month=usd), *extras) if usd else tuple(extras)


def _addresses(costing: Costing, template: DeclaredResource) -> int:
    """External IPv4 addresses of each machine; those of IPv6 are free."""
    faces = template.inputs.get("networkInterfaces")
    configs = [face.get("accessConfigs") for face in items(faces)]
    if unknown(faces) or any(unknown(access) for access in configs):
        costing.note_unknown_part(
            template, "whether its machines have external addresses is not known: they are not counted"
        )
    return sum(len(access) for access in configs if isinstance(access, list | tuple))


def elastic(templates: Sequence[DeclaredResource], costing: Costing, resource: DeclaredResource) -> None:
    """Elastic capacity. The component says in its inputs what may be launched: resources do not."""
    capacity = resource.inputs.get("capacity")
    limits = part(capacity, "elastic")
    if not isinstance(limits, Mapping) or not isinstance(capacity, Mapping):
        return costing.note_unknown_cost(resource, "its limits are not known: it was declared by an earlier release")
    most = number(limits.get("maxInstances"))
    if most is None:
        return costing.note_unknown_cost(resource, "its limit of instances is not known")
    template = nearest(resource, templates, within=True)
    region = (_region(template) if template is not None else None) or costing.region
    if region is None:
        return costing.note_unknown_cost(resource, "its region is not known")
    chosen, declared = choices(capacity)
    costing.types.update({kind.name: kind for kind in declared})
    costing.elastic.append(
        ElasticRequest(
            name=resource.name,
            team=read_team(resource.inputs.get("tags")),
            region=region,
            markets=list_markets(limits),
            most=int(most),
            most_usd_per_hour=number(limits.get("maxUsdPerHour")),
            candidates=tuple(TypeOption(instance_type=choice.name, zones=choice.zones) for choice in chosen),
            zones=texts(limits.get("zones")),
            extras=()
            if template is None
            else _extras(costing, template, spot=Market.ON_DEMAND not in list_markets(limits)),
        )
    )
    return None
