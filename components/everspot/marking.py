"""Marks a cluster's resources with the mark of its store.

Two clusters of one name may share an account: nothing in a cloud collides, since names have random ends. The mark tells
`everspot cluster down`, the search for drift and the scheduler which resources are this cluster's.
"""

from collections.abc import Mapping
from typing import Any

import pulumi
from everspot_core.capacity.launching import store_mark

_TAGS = ("tags", "labels", "user_labels")
_PARTS = ("tag_specifications", "disks")
"""Properties of resources, with the tags of what a template makes."""


class StoreMarking:
    """A transformation that adds the mark to the tags or labels of a component's resources.

    Only resources with the cluster's own tag get it. Resources that are declared before `begin` get none: the store's.
    """

    def __init__(self, cluster_key: str, store_key: str) -> None:
        self._cluster_key, self._store_key = cluster_key, store_key
        self._mark: pulumi.Output[str] | None = None

    def begin(self, control_url: pulumi.Output[str]) -> None:
        """Mark every resource from now on."""
        self._mark = control_url.apply(store_mark)

    def __call__(self, args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        """Return the resource with its mark."""
        if self._mark is None:
            return None
        props: dict[str, Any] = dict(args.props)
        for name in _TAGS:
            if props.get(name) is not None:
                props[name] = self._with_mark(props[name])
        for name in _PARTS:
            if props.get(name) is not None:
                props[name] = [self._part(part) for part in props[name]]
        return pulumi.ResourceTransformationResult(props, args.opts)

    def _part(self, part: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self._with_mark(value) if key in _TAGS else value for key, value in part.items()}

    def _with_mark(self, tags: Any) -> Any:
        if isinstance(tags, pulumi.Output):
            return tags.apply(self._with_mark)
        if isinstance(tags, Mapping):
            return {**tags, self._store_key: self._mark} if self._cluster_key in tags else tags
        if any(isinstance(tag, Mapping) and tag["key"] == self._cluster_key for tag in tags):  # of a scaling group
            return [*tags, {"key": self._store_key, "value": self._mark, "propagate_at_launch": False}]
        return tags
