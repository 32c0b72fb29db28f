"""Orphans: resources with a cluster's tag or label that no stack knows and no scheduler launched.

An update that is killed while the cloud creates a fleet leaves one: the cloud has it, the engine's state does not, and
nobody ends it. An instance belongs to its fleet or group, so only the fleet or group is an orphan, and its
cost is that of its instances, too.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from everspot_core.capacity.catalogue import Catalogue, builtin
from everspot_core.capacity.market import Market
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest
from everspot_core.counting import counted

from everspot_clouds.base import CloudError, RemainingResource, Site
from everspot_clouds.registry import provider

Prices = Mapping[tuple[str, str], float]
"""Spot prices, USD per hour, by type and zone."""


@dataclass(frozen=True)
class Orphan:
    """A resource of a cluster that belongs to no stack.

    Attributes:
        resource: What the cloud has.
        parts: Its instances.
        usd_per_hour: The cost of both; None if a price is not known.
        command: The cloud's own command that removes it.
    """

    resource: RemainingResource
    parts: tuple[RemainingResource, ...] = ()
    usd_per_hour: float | None = None
    command: str = ""

    @property
    def by_hand(self) -> bool:
        """Whether `down` leaves it to a person: it may have data, or belong to another cluster of the same name."""
        return self.resource.by_hand or self.resource.is_of_unknown_owner(())  # no stack has it

    @property
    def cost(self) -> str:
        """The cost of an hour, for people."""
        if self.usd_per_hour is None:
            return "cost not known"
        return "no cost of its own" if self.usd_per_hour == 0 else f"about ${self.usd_per_hour:,.3f} an hour"

    @property
    def sentence(self) -> str:
        """The orphan and its cost, for people."""
        parts = [counted(len(self.parts), "instance")] if self.parts else []
        parts += sorted({part.role for part in self.parts if part.role})
        parts += ["without the mark of this cluster's store"] if self.resource.unmarked else []
        details = ", ".join(detail for detail in (self.resource.detail, *parts) if detail)
        return f"{self.resource.kind} {self.resource.name} ({details}): {self.cost}"


def find_orphans(
    manifest: Manifest,
    stack_ids: Collection[str],
    clock: Clock,
    *,
    site: Site | None = None,
    catalogue: Catalogue | None = None,
    refused: list[str] | None = None,
) -> list[Orphan]:
    """Return the orphans of a cluster, the most expensive first, by its cloud's own answers.

    Args:
        manifest: Names the cluster, its cloud and its region.
        stack_ids: The ids of the resources that the stack has.
        clock: The market's.
        site: The cluster's resources; by default asked with the environment's credentials.
        catalogue: Types and prices; by default the built-in ones.
        refused: A list that gets the reason if queues, buckets or other services cannot be listed. None: that raises
            the error.

    Raises:
        CloudError: if the cloud refuses or does not answer.
    """
    site = site or provider(manifest.cloud).site(manifest)
    resources = [*site.remaining(), *site.list_unbilled()]
    try:
        resources += site.list_other_services()
    except CloudError as error:
        if refused is None:
            raise
        refused.append(f"queues, topics, buckets and keys could not be looked for: {error} {error.fix}".strip())
    unknown = unclaimed(resources, stack_ids)
    machines = [machine for pair in unknown for machine in (pair[0], *pair[1]) if machine.market is Market.SPOT]
    prices = _spot_prices(manifest, clock, machines)
    return priced(unknown, site, manifest.region, catalogue or builtin(), prices)


def unclaimed(
    resources: Iterable[RemainingResource], stack_ids: Collection[str]
) -> list[tuple[RemainingResource, tuple[RemainingResource, ...]]]:
    """Return the resources that nobody claims, each with its instances.

    Claimed are the resources that a stack knows, that a scheduler launched, or that are kept on purpose, and everything
    that belongs to them. Resources that are ending need no claim.
    """
    present = [resource for resource in resources if not resource.retained and not resource.ending]
    names = {resource.name for resource in present}
    parts: dict[str, list[RemainingResource]] = {}
    roots = []
    for resource in present:
        if resource.launched or resource.is_declared(stack_ids):
            continue
        if resource.part_of in names:
            parts.setdefault(resource.part_of, []).append(resource)
        else:
            roots.append(resource)
    return [(root, tuple(parts.get(root.name, ()))) for root in roots]


def priced(
    unknown: Sequence[tuple[RemainingResource, tuple[RemainingResource, ...]]],
    site: Site,
    region: str,
    catalogue: Catalogue,
    prices: Prices,
) -> list[Orphan]:
    """Return these resources with the cost of an hour and the command that removes each, the most expensive first."""
    orphans = []
    for resource, parts in unknown:
        costs = [_usd_per_hour(item, region, catalogue, prices) for item in (resource, *parts)]
        total = None if None in costs else sum(cost for cost in costs if cost is not None)
        orphans.append(Orphan(resource, parts, total, site.removal(resource)))
    return sorted(orphans, key=lambda item: (-(item.usd_per_hour or 0), item.resource.kind, item.resource.name))


def _usd_per_hour(resource: RemainingResource, region: str, catalogue: Catalogue, prices: Prices) -> float | None:
    """Return the cost of an hour. On Spot without a price: the on-demand one, which it never exceeds by default."""
    if not resource.instance_type:
        return resource.usd_per_hour
    spot = prices.get((resource.instance_type, resource.zone)) if resource.market is Market.SPOT else None
    price = catalogue.on_demand(resource.instance_type, region)
    return spot if spot is not None else price.usd_per_hour if price is not None else None


def _spot_prices(
    manifest: Manifest, clock: Clock, machines: Sequence[RemainingResource]
) -> dict[tuple[str, str], float]:
    """Return the present spot prices by type and zone; empty if the cloud does not state them. A missing price must
    not hide an orphan."""
    pools = {(machine.instance_type, machine.zone) for machine in machines if machine.instance_type}
    if not pools:
        return {}
    cloud = provider(manifest.cloud)
    failures: tuple[type[Exception], ...] = (*cloud.errors(), CloudError, OSError)
    try:
        reader = cloud.reading(manifest, clock)
        if reader is None:
            return {}
        try:
            points = reader.spot_prices(sorted(pools), clock.now())
        finally:
            reader.close()
    except failures:
        return {}
    return {(point.instance_type, point.zone): point.usd_per_hour for point in points}
