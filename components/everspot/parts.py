"""Passes the inputs of a cluster's spec to its parts, and collects a component's outputs, both by name."""

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import pulumi
from everspot_core.validation.problems import camel

Args = TypeVar("Args")


def inputs(kind: type[Args], spec: Mapping[str, Any], **own: Any) -> Args:
    """Return a part's inputs.

    Args:
        kind: The part's inputs, a TypedDict.
        spec: The cluster's spec. Those inputs that the part declares too, by name, are passed on.
        own: Inputs that are not in the spec, or have another value for this part.

    Raises:
        TypeError: if the part declares no such input as one of `own`.
    """
    declared = kind.__annotations__
    unknown = [key for key in own if key not in declared]
    if unknown:
        raise TypeError(f"{kind.__name__} has no input {', '.join(unknown)}")
    # A cast, since no type can say "the keys of both": a test holds every input of a spec to reaching a part
    # (tests/components/test_components_reach.py).
    return cast(Args, {**{key: value for key, value in spec.items() if key in declared}, **own})


def outputs(component: pulumi.ComponentResource) -> dict[str, Any]:
    """Return all outputs that a component's class declares, by their camelCase names."""
    return {camel(name): getattr(component, name) for name in inspect.get_annotations(type(component))}


def after(opts: pulumi.ResourceOptions | None) -> pulumi.ResourceOptions:
    """Return options that make a child wait for its component's dependencies, which the engine does not pass on."""
    return pulumi.ResourceOptions(depends_on=opts.depends_on if opts is not None else None)
