"""Stands in for instance templates, global and regional. A template never changes once it exists.

It makes none from an instance that exists.
"""

from typing import Any

from everspot_local.gcp.answers import not_here, required
from everspot_local.gcp.compute.collection import Collection
from everspot_local.gcp.compute.properties import checked
from everspot_local.gcp.compute.state import Compute, fingerprint
from everspot_local.gcp.router import Handler

Document = dict[str, Any]


def routes(compute: Compute) -> dict[str, Handler]:
    """Return handlers by method id."""
    return {**GLOBAL.routes(compute), **REGIONAL.routes(compute)}


def _template(compute: Compute, _scope: str, body: Document) -> Document:
    if body.get("sourceInstance") or body.get("sourceInstanceParams"):
        raise not_here("templates from an instance that exists")
    if not body.get("properties"):
        raise required("resource.properties")
    properties = checked(compute, body["properties"], "resource.properties")
    if "/" in properties["machineType"]:
        # Discovery document, `InstanceProperties.machineType`: "only accepts a machine type name".
        raise not_here("machine types of a template by a URL; Google answers INTERNAL_ERROR")
    metadata = properties.get("metadata", {})
    with_defaults = {"kind": "compute#metadata", "fingerprint": fingerprint(metadata), **metadata}
    return {**body, "properties": {**properties, "metadata": with_defaults}}


GLOBAL = Collection(
    "instanceTemplates", "instanceTemplates", "instanceTemplate", "instanceTemplate", _template,
    verbs=("get", "list", "aggregatedList", "insert", "delete"),
)  # fmt: skip
REGIONAL = Collection(
    "instanceTemplates", "regionInstanceTemplates", "instanceTemplate", "instanceTemplate", _template,
)  # fmt: skip
