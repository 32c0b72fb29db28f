"""The regions of declared resources: by their own inputs, by their providers, or by the resources beside them."""

from collections.abc import Iterable, Sequence
from typing import Any

from everspot_core.capacity.catalogue import zone_region
from everspot_core.cluster.declared import DeclaredResource, unknown


def group_by_region(
    resources: Sequence[DeclaredResource], cloud: str, settings_region: str | None
) -> list[tuple[str | None, list[DeclaredResource]]]:
    """Return the resources of a cloud and Everspot's components by their region, None for those whose region is
    unknown.

    Args:
        resources: All resources of one side of a change, with providers and components.
        cloud: The cloud, by the name of its provider.
        settings_region: The region that the stack's settings name, if they are known.
    """
    regions = _Regions(resources, cloud, settings_region)
    groups: dict[str | None, list[DeclaredResource]] = {}
    for resource in resources:
        if resource.type.startswith((f"{cloud}:", "everspot:")):
            groups.setdefault(regions.find(resource), []).append(resource)
    return sorted(groups.items(), key=lambda group: group[0] or "")


class _Regions:
    def __init__(self, resources: Sequence[DeclaredResource], cloud: str, settings_region: str | None) -> None:
        self._own = [resource for resource in resources if resource.type.startswith(f"{cloud}:")]
        self._settings_region = settings_region
        self._by_provider = {
            resource.urn: _text(resource.inputs.get("region"))
            for resource in resources
            if resource.type == f"pulumi:providers:{cloud}"
        }
        self._parents = {resource.urn: resource.parent for resource in resources}
        self._default = settings_region or _sole(self._by_provider.values()) or self._by_inputs(self._own)
        if settings_region is None and len({region for region in self._by_provider.values() if region}) > 1:
            self._default = None
        self._by_component = self._find_components()

    def find(self, resource: DeclaredResource) -> str | None:
        """Return the region of a resource, None if it is unknown."""
        if resource.type.startswith("everspot:"):
            regions = self._by_component.get(resource.urn)
            return self._default if not regions else _sole(regions)
        return self._of_custom(resource)

    def _of_custom(self, resource: DeclaredResource) -> str | None:
        if stated := _stated_region(resource):
            return stated
        if self._settings_region is not None or resource.provider not in self._by_provider:
            return self._default
        siblings = [other for other in self._own if other.provider == resource.provider]
        return self._by_provider[resource.provider] or self._by_inputs(siblings)

    def _by_inputs(self, resources: Iterable[DeclaredResource]) -> str | None:
        return _sole(_stated_region(resource) for resource in resources)

    def _find_components(self) -> dict[str, set[str | None]]:
        """Return the regions of each component's resources, by the component's URN."""
        regions: dict[str, set[str | None]] = {}
        for resource in self._own:
            parent, region = resource.parent, self._of_custom(resource)
            while parent:
                regions.setdefault(parent, set()).add(region)
                parent = self._parents.get(parent, "")
        return regions


def _sole(regions: Iterable[str | None]) -> str | None:
    """Return the only region; None if there are several, or none."""
    known_regions = {region for region in regions if region}
    return known_regions.pop() if len(known_regions) == 1 else None


def _stated_region(resource: DeclaredResource) -> str | None:
    """Return the region that a resource's own inputs name, by its name, its URL, or one of its zones."""
    if region := _text(resource.inputs.get("region")):
        return region.rpartition("/")[2]
    for key in ("availabilityZone", "zone"):
        try:
            return zone_region(str(resource.inputs.get(key) or "").rpartition("/")[2])
        except ValueError:
            continue
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value and not unknown(value) else None
