"""Automatic names: a resource without one gets its logical name and seven random digits, as official plugins do it."""

from __future__ import annotations

import random
from typing import Any

from everspot_local.bridge.names import Mapping
from everspot_local.bridge.table import Naming, ProviderTable
from everspot_local.bridge.upstream import BridgeError

DIGITS = "0123456789abcdef"
SUFFIX_LENGTH = 7
PROPOSE, ENFORCE, DISABLE = 0, 1, 2


def rule_for(table: ProviderTable, mapping: Mapping) -> Naming | None:
    """Return the naming rule of a type, None if it is not named."""
    if mapping.upstream in table.unnamed:
        return None
    rule = table.naming.get(mapping.upstream, Naming())
    field = next((f for f in mapping.node.fields.values() if f.pulumi == rule.property), None)
    return rule if field is not None and field.settable and field.node.kind == "string" else None


def name_it(
    table: ProviderTable,
    mapping: Mapping,
    inputs: dict[str, Any],
    olds: dict[str, Any],
    name: str,
    seed: bytes,
    proposal: str,
    mode: int,
) -> dict[str, Any]:
    """Return the inputs with a name where the user gave none; a name given automatically before is kept.

    Raises:
        BridgeError: automatic naming was switched off, and the user gave no name.
    """
    rule = rule_for(table, mapping)
    if rule is None or rule.property in inputs or f"{rule.property}Prefix" in inputs:
        return {**inputs, "__defaults": []}
    if mode == DISABLE:
        raise BridgeError(f"{rule.property}: automatic naming is disabled, so a name is required")
    prior_name = olds.get(rule.property) if rule.property in olds.get("__defaults", []) else None
    ending = next((e for property_name, e in table.endings.items() if inputs.get(property_name) is True), "")
    new_name = prior_name or (proposal if mode == ENFORCE else _fresh(rule, proposal, name, seed, ending))
    return {**inputs, rule.property: new_name, "__defaults": [rule.property]}


def _fresh(rule: Naming, proposal: str, name: str, seed: bytes, ending: str) -> str:
    if proposal:
        return f"{rule.prefix}{proposal}{ending}"
    digits = random.Random(seed or None).choices(DIGITS, k=SUFFIX_LENGTH)  # noqa: S311 (a name, not a secret)
    room = rule.longest - len(rule.prefix) - SUFFIX_LENGTH - 1 - len(ending)
    base = name.lower() if rule.lower else name
    return f"{rule.prefix}{base[:room]}-{''.join(digits)}{ending}"


def in_the_way(table: ProviderTable, mapping: Mapping, olds: dict[str, Any], news: dict[str, Any]) -> bool:
    """Return whether a resource has a name of the user's own that its replacement will have too."""
    rule = rule_for(table, mapping)
    if rule is None or rule.property not in news or rule.property in news.get("__defaults", []):
        return False
    return bool(news[rule.property] == olds.get(rule.property))
