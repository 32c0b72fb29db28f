"""The resources that cost money in a cluster on Kubernetes, from its settings alone."""

from collections.abc import Mapping
from typing import Any

from everspot_core.cluster.declared import DeclaredResource
from everspot_core.validation.problems import Problems

from everspot_clouds.costing import choices
from everspot_clouds.price_files import load_catalogue
from everspot_clouds.settings_estimate import ClusterOutline, check_listed

POOL, _STORE = "everspot:index:AwsKubernetesPool", "everspot:index:AwsStore"
_REGISTERED = ("capacity", "nodes")
"""Settings that the component registers as its inputs, beside its tags."""


def outline_cluster(problems: Problems, stack: str, settings: Mapping[str, Any]) -> list[DeclaredResource]:
    """Return the resources of a cluster. If its capacity is invalid, add the problems and return no resources."""
    whole = ClusterOutline(stack, settings, POOL)
    here = problems.at("capacity")
    here.need("standing" not in whole.capacity, "standing", "is another cloud's setting")
    if not here.need("elastic" in whole.capacity, "elastic", "is missing"):
        return []
    types, declared = choices(whole.capacity)
    if not check_listed(here, types, load_catalogue().with_types(declared).types):
        return []
    inputs = {key: settings[key] for key in _REGISTERED if key in settings} | {"tags": whole.tags}
    whole.resources.append(DeclaredResource(f"urn:pulumi:{stack}::everspot::{POOL}::{whole.name}", POOL, inputs))
    for bucket in ("control", "data"):
        whole.add("aws:s3/bucket:Bucket", f"store-{bucket}", {}, _STORE)
    return whole.resources
