"""The clusters of a stack by the engine's state of it, which also exists for a stack whose first update was killed."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from everspot_core.cluster.deployment import control_url, pending_resources, resources
from everspot_core.cluster.manifest import Manifest

from everspot_clouds.aws.rules import CLUSTER_TAG
from everspot_clouds.gcp.rules import CLUSTER_LABEL

_CLUSTER = {"aws": ("tags", CLUSTER_TAG), "gcp": ("labels", CLUSTER_LABEL)}
"""By cloud: the property of a resource that names its cluster, and the key in it."""

_BUCKETS = {"aws": ("aws:s3/bucket:Bucket", "s3"), "gcp": ("gcp:storage/bucket:Bucket", "gs")}
_CONTROL, _DATA = "-store-control", "-store-data"
"""Ends of the names of a cluster's buckets within the program."""

_COMPONENTS = "everspot:index:"
"""Beginning of the types of Everspot's components. The URN of a resource has the types of its parents."""

_REGION_VARIABLES = {"aws": ("AWS_REGION", "AWS_DEFAULT_REGION"), "gcp": ("GOOGLE_REGION", "CLOUDSDK_COMPUTE_REGION")}


def list_ids(state: Mapping[str, Any]) -> frozenset[str]:
    """Return the ids of a stack's resources, and the last names of ids that are paths or ARNs."""
    ids = {str(item["id"]) for item in resources(state) if item.get("id")}
    return frozenset(
        ids | {full_id.rpartition("/")[2] for full_id in ids} | {re.split("[:/]", full_id)[-1] for full_id in ids}
    )


def list_outside(state: Mapping[str, Any], cluster: str) -> list[str]:
    """Return what a stack has beside a cluster: the names of other clusters, and each resource that no component of
    Everspot declares, as TYPE NAME. Resources that are only looked up are left out, because no destroy deletes them."""
    clusters = sorted({manifest.cluster for manifest in declared_clusters(state)} - {cluster})
    others = [
        f"{item.get('type')} {str(item.get('urn')).rpartition('::')[2]}"
        for item in resources(state)
        if item.get("custom")
        and not item.get("external")
        and not str(item.get("type")).startswith("pulumi:providers:")
        and _COMPONENTS not in str(item.get("urn"))
    ]
    return [f"the cluster {name}" for name in clusters] + others


def declared_clusters(state: Mapping[str, Any]) -> list[Manifest]:
    """Return the clusters whose tag or label a stack's resources have, as far as a look at their cloud needs them.

    An interrupted creation counts: it may be the only trace. Resources that are only looked up do not count.
    """
    items = [item for item in (*resources(state), *pending_resources(state)) if not item.get("external")]
    regions: dict[tuple[str, str], dict[str, str]] = {}
    for cloud, cluster, item in _tagged(items):
        region, account = _place(cloud, item)
        by_region = regions.setdefault((cloud, cluster), {})
        if region or account:
            by_region[region] = account or by_region.get(region, "")
    manifests = []
    for (cloud, cluster), places in sorted(regions.items()):
        accounts_by_region = {region: account for region, account in places.items() if region}
        default_region, default_account = _provider(cloud, items)
        if not accounts_by_region:
            accounts_by_region = {default_region: next(iter(places.values()), "")}
        accounts = [account for account in places.values() if account]
        for region, account in sorted(accounts_by_region.items()):
            urls = _urls(cloud, cluster, region, state)
            owner = account or (accounts[0] if accounts else default_account)
            manifests.append(Manifest(cluster=cluster, cloud=cloud, region=region, account=owner, **urls))
    return manifests


def _tagged(items: list[Mapping[str, Any]]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for item in items:
        cloud = str(item.get("type") or "").partition(":")[0]
        if cloud in _CLUSTER:
            name, key = _CLUSTER[cloud]
            tags = _value(item, name)
            cluster = tags.get(key) if isinstance(tags, Mapping) else None
            if isinstance(cluster, str) and cluster:
                yield cloud, cluster, item


def _place(cloud: str, item: Mapping[str, Any]) -> tuple[str, str]:
    """Return the region and, on Google Cloud, the project of a resource; empty where it names none."""
    region = str(_value(item, "region") or "").rpartition("/")[2]
    if cloud == "aws":
        arn = str(_value(item, "arn") or "").split(":")
        return region or (arn[3] if len(arn) > 3 else ""), ""
    return region, str(_value(item, "project") or "")


def _provider(cloud: str, items: list[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the region and project of the stack's provider, otherwise of this machine's environment."""
    for item in items:
        if item.get("type") == f"pulumi:providers:{cloud}" and _value(item, "region"):
            return str(_value(item, "region")), str(_value(item, "project") or "")
    return next((os.environ[name] for name in _REGION_VARIABLES[cloud] if os.environ.get(name)), ""), ""


def _urls(cloud: str, cluster: str, region: str, state: Mapping[str, Any]) -> dict[str, str]:
    kind, scheme = _BUCKETS[cloud]
    query = f"?region={region}" if cloud == "aws" and region else ""
    buckets = {
        str(item.get("urn")).rpartition("::")[2]: str(item["id"])
        for item in resources(state)
        if item.get("type") == kind and item.get("id")
    }
    urls = {
        name: f"{scheme}://{buckets[f'{cluster}{end}']}{query}" if f"{cluster}{end}" in buckets else ""
        for name, end in (("control_url", _CONTROL), ("data_url", _DATA))
    }
    return {**urls, "control_url": urls["control_url"] or control_url(state)}


def _value(item: Mapping[str, Any], name: str) -> Any:
    """Return a property as the cloud gave it, otherwise as it was declared."""
    for side in ("outputs", "inputs"):
        values = item.get(side)
        if isinstance(values, Mapping) and values.get(name) is not None:
            return values[name]
    return None
