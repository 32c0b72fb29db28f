"""`ignoreChanges`: puts the prior values into a configuration at the ignored paths."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

from everspot_local.bridge.plan import alike
from everspot_local.bridge.schema import Node

INDEX = re.compile(r'\[(\d+|\*|"[^"]*")\]|([^.\[\]]+)')


def ignore(node: Node, config: Any, prior: Any, paths: Sequence[str]) -> None:
    """Put the prior values into a configuration, in place, at Pulumi paths.

    The engine has put the old inputs there already, by position in the lists that the user wrote. What is left to do is
    what inputs do not tell: values that the provider chose. A set's prior elements have no positions, so an element of
    the configuration takes its values from the prior one that is like it in everything else, or keeps its own.
    """
    for path in paths:
        steps = [m.group(1) or m.group(2) for m in INDEX.finditer(path)]
        _keep(node, config, prior, [s.strip('"') for s in steps])


def _keep(node: Node, config: Any, prior: Any, steps: list[str]) -> None:
    if not isinstance(config, dict | list) or prior is None:
        return
    step, remaining_steps = steps[0], steps[1:]
    if isinstance(config, list):
        (_keep_in_set if node.kind == "set" else _keep_in_list)(node, config, prior, step, remaining_steps)
    elif node.kind != "object":
        if step in prior:
            config[step] = prior[step]
        else:
            config.pop(step, None)
    elif f := next((f for f in node.fields.values() if f.pulumi == step), None):
        if f.flat and remaining_steps:
            remaining_steps = ["0", *remaining_steps]
        if remaining_steps:
            _keep(f.node, config[f.tf], prior[f.tf], remaining_steps)
        else:
            config[f.tf] = prior[f.tf]


def _keep_in_list(node: Node, config: list[Any], prior: list[Any], step: str, remaining_steps: list[str]) -> None:
    for i in _chosen(step, min(len(config), len(prior))):
        if remaining_steps and node.elem:
            _keep(node.elem, config[i], prior[i], remaining_steps)
        elif not remaining_steps:
            config[i] = prior[i]


def _keep_in_set(node: Node, config: list[Any], prior: list[Any], step: str, remaining_steps: list[str]) -> None:
    if node.elem is None:
        return
    if not remaining_steps:
        if step == "*":
            config[:] = prior
        return
    unmatched = list(prior)
    for i in _chosen(step, len(config)):
        for before in unmatched:
            candidate = copy.deepcopy(config[i])
            _keep(node.elem, candidate, before, remaining_steps)
            if alike(node.elem, candidate, before):
                config[i] = candidate
                unmatched.remove(before)
                break


def _chosen(step: str, count: int) -> list[int]:
    if step == "*":
        return list(range(count))
    return [int(step)] if step.isdigit() and int(step) < count else []
