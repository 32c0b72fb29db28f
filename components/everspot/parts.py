"""What a cluster's spec says to each of its parts, and what a part hands on: by name, and nothing copied by hand."""

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import pulumi
from everspot_core.problems import camel

Args = TypeVar("Args")


def inputs(kind: type[Args], spec: Mapping[str, Any], **own: Any) -> Args:
    """A part's inputs: what it calls by the name that the spec calls it by, and what is its `own`."""
    return cast(Args, {**{key: value for key, value in spec.items() if key in kind.__annotations__}, **own})


def outputs(component: pulumi.ComponentResource) -> dict[str, Any]:
    """Everything that a component's class declares as an output, by the name that it has outside Python."""
    return {camel(name): getattr(component, name) for name in inspect.get_annotations(type(component))}
