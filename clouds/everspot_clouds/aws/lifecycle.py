"""Lifecycle rules of S3 buckets that delete objects, as a reviewer of a change asks for them.

Amazon S3 User Guide, "Lifecycle configuration elements" and "Expiring objects": a rule applies to the objects that are
there, too. A rule with a date stays in effect after it.
"""

import json
from collections.abc import Mapping
from typing import Any

from everspot_clouds.base.deletion_rules import (
    CURRENT,
    EARLIER,
    DeletionRule,
    day_number,
    describe_number,
    mappings,
    parse_number,
)
from everspot_clouds.base.resources import Inputs


def read_configuration(inputs: Inputs) -> list[DeletionRule]:
    """Return the enabled rules of a bucket's lifecycle configuration that delete objects."""
    rules: list[DeletionRule] = []
    for rule in mappings(inputs.get("rules")):
        if rule.get("status") == "Enabled":
            filter_block = rule.get("filter")
            selection = dict(filter_block) if isinstance(filter_block, Mapping) else {}
            conjunction = selection.pop("and", None)
            selection |= conjunction if isinstance(conjunction, Mapping) else {}
            prefix = str(selection.pop("prefix", None) or rule.get("prefix") or "")
            rules += _read(rule, prefix, selection)
    return rules


def read_bucket(inputs: Inputs) -> list[DeletionRule]:
    """Return the enabled rules that delete objects of those that a bucket itself declares."""
    rules: list[DeletionRule] = []
    for rule in mappings(inputs.get("lifecycleRules")):
        if rule.get("enabled") is not False:
            rules += _read(rule, str(rule.get("prefix") or ""), {"tags": rule.get("tags")})
    return rules


def _read(rule: Mapping[str, Any], prefix: str, selection: Mapping[str, Any]) -> list[DeletionRule]:
    selectors = {key: json.dumps(value, sort_keys=True, default=str) for key, value in selection.items() if value}
    rules = []
    expiration = _block(rule, "expiration")
    if (days := expiration.get("days")) is not None and days != 0:
        limit = parse_number(days)
        timing = f"{describe_number(limit)} days after they were written"
        plain = None if selectors else limit
        rules.append(DeletionRule(prefix, frozenset({CURRENT}), timing, {"days": limit}, selectors, plain))
    elif day := expiration.get("date"):
        timing = f"from {str(day)[:10]} on, whatever their age"
        rules.append(DeletionRule(prefix, frozenset({CURRENT}), timing, {"date": day_number(day)}, selectors))
    earlier = _block(rule, "noncurrentVersionExpiration")
    days = earlier.get("noncurrentDays", earlier.get("days"))
    if days is not None:
        limits = {"noncurrentDays": parse_number(days)}
        timing = f"{describe_number(limits['noncurrentDays'])} days after newer ones replaced them"
        if newer := earlier.get("newerNoncurrentVersions"):
            limits["newerNoncurrentVersions"] = parse_number(newer)
            timing += f", but for the last {describe_number(limits['newerNoncurrentVersions'])}"
        rules.append(DeletionRule(prefix, frozenset({EARLIER}), timing, limits, selectors))
    return rules


def _block(rule: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a block of a rule, which one of the provider's types of buckets has as a list with a name in the
    plural."""
    block = rule.get(name) or next(iter(mappings(rule.get(f"{name}s"))), None)
    return block if isinstance(block, Mapping) else {}
