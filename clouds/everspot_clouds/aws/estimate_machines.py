"""The instances of declared AWS resources, and the cost of each besides its price."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from everspot_core.capacity.allocation import Prefer
from everspot_core.capacity.market import Market
from everspot_core.cluster.declared import DeclaredResource, unknown
from everspot_core.estimate.requested import ElasticRequest, Extra, StandingRequest, TypeOption

from everspot_clouds.aws import fixed_prices as fixed
from everspot_clouds.aws.fleet import ON_DEMAND_PREFERS, SPOT_PREFERS
from everspot_clouds.aws.root_volume import initialization_usd
from everspot_clouds.costing import Costing, choices, items, list_markets, nearest, number, part, read_team, texts

NODE_GIB = 100
"""Root volume of a node of Kubernetes whose settings name none, in GiB."""

_PREFER = SPOT_PREFERS | {"lowestPrice": Prefer.PRICE, "diversified": Prefer.DEPTH}


def fleet(
    templates: Sequence[DeclaredResource], zones: Sequence[str], costing: Costing, resource: DeclaredResource
) -> None:
    """An EC2 Fleet: the units of each market."""
    inputs = resource.inputs
    sizes = _sizes(inputs.get("targetCapacitySpecification"))
    if sizes is None:
        return costing.note_unknown_cost(resource, "its target is not known before the update")
    if not any(sizes.values()):
        return None
    candidates = _candidates(inputs.get("launchTemplateConfigs"))
    if not candidates:
        return costing.note_unknown_cost(resource, "its instance types are not known before the update")
    if costing.region is None:
        return costing.note_unknown_cost(resource, "its region is not known")
    template = nearest(resource, templates)
    costing.standing += [
        StandingRequest(
            name=resource.name,
            team=read_team(inputs.get("tags")),
            region=costing.region,
            market=market,
            units=units,
            candidates=candidates,
            zones=tuple(zones),
            prefer=_prefer(inputs, market),
            pools=int(number(part(inputs, "spotOptions", "instancePoolsToUseCount")) or 1),
            extras=_extras(costing, resource, template),
        )
        for market, units in sizes.items()
        if units
    ]
    return None


def _prefer(inputs: Mapping[str, Any], market: Market) -> Prefer:
    if market is Market.ON_DEMAND:
        strategy = str(part(inputs, "onDemandOptions", "allocationStrategy"))
        return ON_DEMAND_PREFERS.get(strategy, Prefer.PRICE)
    return _PREFER.get(str(part(inputs, "spotOptions", "allocationStrategy") or "lowestPrice"), Prefer.BALANCE)


def _sizes(specification: Any) -> dict[Market, Fraction] | None:
    """Return units by market. Units that no part names belong to the default market."""
    total = number(part(specification, "totalTargetCapacity"))
    if total is None:
        return None
    sizes = {
        Market.ON_DEMAND: number(part(specification, "onDemandTargetCapacity")) or Fraction(0),
        Market.SPOT: number(part(specification, "spotTargetCapacity")) or Fraction(0),
    }
    default = Market.SPOT if part(specification, "defaultTargetCapacityType") == "spot" else Market.ON_DEMAND
    sizes[default] += max(Fraction(0), total - sum(sizes.values()))
    return sizes


def _candidates(configs: Any) -> tuple[TypeOption, ...]:
    """Return the types of a fleet's overrides, each once. EC2's limit is a price per unit."""
    options: dict[str, TypeOption] = {}
    for override in (entry for config in items(configs) for entry in items(config.get("overrides"))):
        kind = override.get("instanceType")
        if not isinstance(kind, str) or unknown(kind):
            continue
        weight = number(override.get("weightedCapacity")) or Fraction(1)
        unit, rank = number(override.get("maxPrice")), number(override.get("priority"))
        options[kind] = TypeOption(
            instance_type=kind,
            weight=weight,
            priority=None if rank is None else float(rank),
            max_price=None if unit is None else unit * weight,
        )
    return tuple(options.values())


def _extras(costing: Costing, resource: DeclaredResource, template: DeclaredResource | None) -> tuple[Extra, ...]:
    """Return the cost of each instance of a template besides its price."""
    if template is None:
        costing.note_unknown_part(resource, "its launch template is not among the resources: volumes are not counted")
        return ()
    extras = []
    if part(template.inputs, "monitoring", "enabled"):
        extras.append(Extra(kind="detailed monitoring", usd_per_month=costing.rate(fixed.DETAILED).usd_per_month))
    public = [part(face, "associatePublicIpAddress") for face in items(template.inputs.get("networkInterfaces"))]
    if any(str(flag).lower() == "true" for flag in public):  # the provider takes it as a text
        extras.append(Extra(kind="public addresses", usd_per_month=costing.rate(fixed.ADDRESS).usd_per_month))
    _initialization(costing, template)
    volumes = [_volume(costing, template, mapping) for mapping in items(template.inputs.get("blockDeviceMappings"))]
    usd = sum((volume for volume in volumes if volume is not None), Fraction(0))
    return (*extras, Extra(kind="volumes", usd_per_month=usd)) if usd else tuple(extras)


def _initialization(costing: Costing, template: DeclaredResource) -> None:
    """Note what each launch costs where volumes are read from their snapshot at a provisioned rate."""
    for mapping in items(template.inputs.get("blockDeviceMappings")):
        gib = number(part(mapping, "ebs", "volumeSize"))
        if gib is not None and part(mapping, "ebs", "volumeInitializationRate"):
            usd = f"${initialization_usd(float(gib)):.2f}"
            costing.add_metered(template, f"the initialization of volumes, at most {usd} a launch")


def _volume(costing: Costing, template: DeclaredResource, mapping: Any) -> Fraction | None:
    """Return a volume's month, None if it is not known."""
    gib, kind = number(part(mapping, "ebs", "volumeSize")), part(mapping, "ebs", "volumeType")
    if gib is None:
        costing.note_unknown_part(template, "the size of its volumes is not known: they are not counted")
        return None
    if kind != "gp3":
        costing.note_unknown_part(template, f"volumes of type {kind} have no price here")
        return None
    free_iops, free_mibs = fixed.GP3_FREE
    iops = max(0, (number(part(mapping, "ebs", "iops")) or 0) - free_iops)
    mibs = max(0, (number(part(mapping, "ebs", "throughput")) or 0) - free_mibs)
    usd = gib * costing.rate(fixed.GP3_GIB).usd
    for beyond, each in ((iops, fixed.GP3_IOPS), (mibs, fixed.GP3_MIBS)):
        usd += beyond * costing.rate(each).usd if beyond else 0
    return usd


def group(templates: Sequence[DeclaredResource], costing: Costing, resource: DeclaredResource) -> None:
    """An Auto Scaling group, at the size that it begins with."""
    template = nearest(resource, templates)
    kind = None if template is None else template.inputs.get("instanceType")
    desired = resource.inputs.get("desiredCapacity")
    size = number(resource.inputs.get("minSize") if desired is None else desired)
    if resource.inputs.get("mixedInstancesPolicy") or kind is None or unknown(kind) or size is None:
        return costing.note_unknown_cost(resource, "its instance type or its size is not known")
    if costing.region is None:
        return costing.note_unknown_cost(resource, "its region is not known")
    costing.standing.append(_others(resource, costing.region, str(kind), size, _extras(costing, resource, template)))
    return None


def instance(costing: Costing, resource: DeclaredResource) -> None:
    """A single instance."""
    kind = resource.inputs.get("instanceType")
    if kind is None or unknown(kind) or costing.region is None:
        return costing.note_unknown_cost(resource, "its instance type or region is not known")
    costing.note_unknown_part(resource, "its volumes are not counted")
    costing.standing.append(_others(resource, costing.region, str(kind), Fraction(1)))
    return None


def _others(
    resource: DeclaredResource, region: str, kind: str, units: Fraction, extras: tuple[Extra, ...] = ()
) -> StandingRequest:
    """On-demand instances of one type that run no jobs."""
    return StandingRequest(
        name=resource.name,
        team=read_team(resource.inputs.get("tags")),
        region=region,
        market=Market.ON_DEMAND,
        units=units,
        candidates=(TypeOption(instance_type=kind),),
        extras=extras,
        agents=False,
    )


def kubernetes_pool(costing: Costing, resource: DeclaredResource) -> None:
    """The nodes of a cluster on Kubernetes: what its component says in its inputs may be launched. Control plane and
    the scheduler's node are the Kubernetes cluster's own."""
    gib = number(part(resource.inputs, "nodes", "volumeGib")) or NODE_GIB
    volume = {"ebs": {"volumeSize": float(gib), "volumeType": "gp3"}}
    usd = _volume(costing, resource, volume)
    extras = () if usd is None else (Extra(kind="volumes", usd_per_month=usd),)
    _launchable(costing, resource, texts(part(resource.inputs, "capacity", "elastic", "zones")), lambda: extras)
    costing.add_metered(
        resource, "the Kubernetes cluster by its control plane, its add-ons and the node of the scheduler"
    )


def elastic(
    templates: Sequence[DeclaredResource], zones: Sequence[str], costing: Costing, resource: DeclaredResource
) -> None:
    """The component says in its inputs what may be launched: resources do not."""
    _launchable(costing, resource, zones, lambda: _extras(costing, resource, nearest(resource, templates, within=True)))


def _launchable(
    costing: Costing, resource: DeclaredResource, zones: Sequence[str], extras: Callable[[], tuple[Extra, ...]]
) -> None:
    """Add the elastic capacity of a component. `zones`: where its settings name none; `extras`: of each instance."""
    capacity = resource.inputs.get("capacity")
    elastic = part(capacity, "elastic")
    if not isinstance(elastic, Mapping) or not isinstance(capacity, Mapping):
        return costing.note_unknown_cost(resource, "its limits are not known: it was declared by an earlier release")
    if costing.region is None:
        return costing.note_unknown_cost(resource, "its region is not known")
    most = number(elastic.get("maxInstances"))
    if most is None:
        return costing.note_unknown_cost(resource, "its limit of instances is not known")
    limit = capacity.get("maxPrice")
    chosen, declared = choices(capacity)
    costing.types.update({kind.name: kind for kind in declared})
    costing.elastic.append(
        ElasticRequest(
            name=resource.name,
            team=read_team(resource.inputs.get("tags")),
            region=costing.region,
            markets=list_markets(elastic),
            most=int(most),
            most_usd_per_hour=number(elastic.get("maxUsdPerHour")),
            candidates=tuple(
                TypeOption(
                    instance_type=choice.name,
                    max_price=number(limit if choice.max_price is None else choice.max_price),
                    zones=choice.zones,
                )
                for choice in chosen
            ),
            zones=texts(elastic.get("zones")) or tuple(zones),
            extras=extras(),
        )
    )
    return None
