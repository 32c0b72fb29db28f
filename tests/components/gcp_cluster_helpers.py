"""Helpers for tests of a whole Google Cloud cluster: its registered resources, and the types of its children."""

import copy
import json
from collections.abc import Callable
from typing import Any

from everspot import GcpTrainingCluster
from everspot_clouds.gcp.rules import MANIFEST_KEY
from gcp_helpers import SPEC

Declare = Callable[..., tuple[Any, dict[str, Any]]]
Cluster = Callable[..., Any]
SUBNETWORK = "projects/everspot-local/regions/europe-west4/subnetworks/train-network-subnetwork"
ELASTIC = {"max_instances": 8, "max_usd_per_hour": 20.0}

TEMPLATE = "gcp:compute/regionInstanceTemplate:RegionInstanceTemplate"
GROUP = "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager"
FIREWALL = "gcp:compute/firewall:Firewall"


def cluster_outputs(args: Any) -> dict[str, Any]:
    cluster = GcpTrainingCluster("train", args)
    return {name: getattr(cluster, name) for name in GcpTrainingCluster.__annotations__}


def registered(declare: Declare, capacity: Any = None, **changes: Any) -> Any:
    """Return the resources that a cluster registers, with the spec changed by keyword; `capacity` is merged into the
    spec's."""
    args: Any = {key: value for key, value in {**copy.deepcopy(SPEC), **changes}.items() if value is not None}
    args["capacity"] |= capacity or {}
    return declare(lambda: cluster_outputs(args))[0]


def manifest(recorder: Any, template: str) -> dict[str, Any]:
    return json.loads(recorder.inputs(template)["metadata"][MANIFEST_KEY])
