"""What the engine's exported state of a stack holds: its resources, and the stack's own outputs."""

from collections.abc import Mapping
from typing import Any

CONTROL = "controlUrl"
"""The output of a stack with the URL of its cluster's control bucket."""

_STACK = "pulumi:pulumi:Stack"


def resources(state: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The resources of an exported stack, in the state's order; secrets in them are the engine's ciphertext."""
    deployment = state.get("deployment")
    found = deployment.get("resources") if isinstance(deployment, Mapping) else None
    return tuple(item for item in found or () if isinstance(item, Mapping))


def control_url(state: Mapping[str, Any]) -> str:
    """The URL of the cluster's control bucket; empty if the stack has no cluster, or keeps it as a secret, which
    nobody opens."""
    for resource in resources(state):
        if resource.get("type") == _STACK:
            found = (resource.get("outputs") or {}).get(CONTROL)
            return found if isinstance(found, str) else ""
    return ""
