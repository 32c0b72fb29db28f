"""Plans: the proposed state of a request, the differences in the answer, and which of them force a replacement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from everspot_local.bridge.schema import Field, Node
from everspot_local.bridge.upstream import UNKNOWN, is_unknown
from everspot_local.bridge.values import Step, join


@dataclass(frozen=True)
class Change:
    """One difference between the prior and the planned state, at a Pulumi path."""

    path: str
    kind: str
    field: Field


def proposed(node: Node, config: Any, prior: Any) -> Any:
    """Return the state to propose: what is configured, else what was before where the provider computes it.

    This is Terraform's own rule. Blocks in lists are matched by position, in sets by what is configured in them.
    """
    if config is None or is_unknown(config):
        return config
    out = {}
    for f in node.fields.values():
        configured, before = config[f.tf], prior.get(f.tf) if isinstance(prior, dict) else None
        if f.node.block:
            out[f.tf] = _blocks(f.node, configured, before)
        else:
            out[f.tf] = before if configured is None and f.computed else configured
    return out


def _blocks(node: Node, config: Any, prior: Any) -> Any:
    if node.kind == "object" or config is None or is_unknown(config):
        return proposed(node, config, prior)
    elem = node.elem
    if elem is None:
        return config
    if node.kind == "map":
        return {k: proposed(elem, v, (prior or {}).get(k)) for k, v in config.items()}
    unmatched = list(prior or [])
    if node.kind == "list":
        return [proposed(elem, v, unmatched[i] if i < len(unmatched) else None) for i, v in enumerate(config)]
    out = []
    for item in config:
        match = next((p for p in unmatched if _can_match(elem, item, p)), None)
        if match is not None:
            unmatched.remove(match)
        out.append(proposed(elem, item, match))
    return out


def _can_match(node: Node, config: Any, prior: Any) -> bool:
    """Return whether this configuration can describe a set's prior element."""
    for f in node.fields.values():
        configured, before = config[f.tf], prior[f.tf]
        if configured is None:
            if not f.computed and before is not None:
                return False
        elif f.node.block and f.node.kind in ("list", "set") and f.node.elem:
            if len(configured) != len(before) or not all(
                any(_can_match(f.node.elem, g, b) for b in before) for g in configured if isinstance(g, dict)
            ):
                return False
        elif not same(f.node, configured, before):
            return False
    return True


def same(node: Node, a: Any, b: Any) -> bool:
    """Return whether two values of a type are equal; sets have no order, and an unknown equals only an unknown."""
    return bool(canonical(node, a) == canonical(node, b))


def canonical(node: Node, value: Any) -> Any:
    """Return a comparable form of a value."""
    if value is None or node.scalar or is_unknown(value):
        return value
    if node.kind == "object":
        return {f.tf: canonical(f.node, value.get(f.tf)) for f in node.fields.values()}
    elem = node.elem or Node("string")
    if node.kind == "map":
        return {k: canonical(elem, v) for k, v in value.items()}
    items = [canonical(elem, v) for v in value]
    return sorted(items, key=repr) if node.kind == "set" else items


def alike(node: Node, config: Any, prior: Any) -> bool:
    """Return whether this configuration describes a prior element; what it leaves to the provider does not count."""
    config, prior = (_filled(canonical(node, value)) for value in (config, prior))
    if isinstance(config, dict) and isinstance(prior, dict):
        left_to_it = {f.tf for f in node.fields.values() if f.computed and f.tf not in config}
        prior = {key: part for key, part in prior.items() if key not in left_to_it}
    return bool(config == prior)


def _filled(value: Any) -> Any:
    """Return the value without empty texts, lists and numbers, which upstream answers where nothing was configured."""
    if isinstance(value, dict):
        return {key: _filled(part) for key, part in value.items() if part not in (None, "", [], {}, 0, False)}
    return value


def changes(node: Node, prior: Any, planned: Any, path: str = "", top: Field | None = None) -> Iterator[Change]:
    """Yield the differences of two objects, as deep as both sides have parts; a set counts as one."""
    for f in node.fields.values():
        before, after = (prior or {}).get(f.tf), (planned or {}).get(f.tf)
        if f.pulumi and not same(f.node, before, after):
            yield from _differ(f, top or f, f.node, before, after, join(path, f.pulumi))


def _differ(f: Field, top: Field, node: Node, before: Any, after: Any, path: str) -> Iterator[Change]:
    elem = node.elem
    if is_unknown(after) or before in (None, []) or after in (None, []):
        kind = "add" if before in (None, []) else "delete" if after in (None, []) else "update"
        yield Change(path, kind, top)
    elif node.kind == "object":
        yield from changes(node, before, after, path, top)
    elif node.kind == "map" and elem:
        for key in sorted({*before, *after}):
            if not same(elem, before.get(key), after.get(key)):
                kind = "add" if key not in before else "delete" if key not in after else "update"
                yield Change(join(path, key), kind, top)
    elif node.kind == "list" and elem:
        for i in range(max(len(before), len(after))):
            b, a = (x[i] if i < len(x) else None for x in (before, after))
            if not same(elem, b, a):
                yield from _differ(f, top, elem, b, a, path if f.flat else join(path, i))
    else:
        yield Change(path, "update", top)


def pulumi_path(node: Node, steps: Sequence[Step]) -> str:
    """Translate an upstream attribute path, such as `("tags", "a")`, to a Pulumi property path."""
    path, flat = "", False
    for step in steps:
        if node.kind == "object" and isinstance(step, str) and step in node.fields:
            f = node.fields[step]
            path, node, flat = join(path, f.pulumi or f.tf), f.node, f.flat
            continue
        if not (flat and isinstance(step, int)):
            path = join(path, step)
        node, flat = node.elem or node, False
    return path


def value_at(value: Any, steps: Sequence[Step]) -> Any:
    """Return the part of an upstream value at a path: None where it is missing, unknown inside an unknown."""
    for step in steps:
        if is_unknown(value):
            return UNKNOWN
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def replacements(node: Node, prior: Any, planned: Any, paths: Sequence[Sequence[Step]]) -> list[str]:
    """Return the Pulumi paths that force a replacement: those the provider named whose value does change."""
    forced_paths = []
    for steps in paths:
        before, after = value_at(prior, steps), value_at(planned, steps)
        if is_unknown(after) or before != after:
            forced_paths.append(pulumi_path(node, steps))
    return forced_paths
