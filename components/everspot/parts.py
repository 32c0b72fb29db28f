"""Passes the inputs of a cluster's spec to its parts, and collects a component's outputs, both by name."""

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import pulumi
from everspot_core.problems import camel

Args = TypeVar("Args")


def inputs(kind: type[Args], spec: Mapping[str, Any], **own: Any) -> Args:
    """A part's inputs: those inputs of the spec that have the same name, and its `own` ones, which win."""
    return cast(Args, {**{key: value for key, value in spec.items() if key in kind.__annotations__}, **own})


def outputs(component: pulumi.ComponentResource) -> dict[str, Any]:
    """All outputs that a component's class declares, by their camelCase names."""
    return {camel(name): getattr(component, name) for name in inspect.get_annotations(type(component))}


def after(opts: pulumi.ResourceOptions | None) -> pulumi.ResourceOptions:
    """Return options that make a child wait for its component's dependencies, which the engine does not pass on."""
    return pulumi.ResourceOptions(depends_on=opts.depends_on if opts is not None else None)
