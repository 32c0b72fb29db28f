"""Lifecycle rules of Cloud Storage buckets that delete objects, as a reviewer of a change asks for them.

Cloud Storage, "Object Lifecycle Management": a rule deletes what fulfils all its conditions, of the objects that are
there, too. Without `withState` it deletes live and noncurrent versions.
"""

from collections.abc import Hashable, Mapping
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

_NUMBERS = {
    "age": ("sendAgeIfZero", "{} days after they were written"),
    "daysSinceCustomTime": ("sendDaysSinceCustomTimeIfZero", "{} days after their custom time"),
    "daysSinceNoncurrentTime": ("sendDaysSinceNoncurrentTimeIfZero", "{} days after newer ones replaced them"),
    "numNewerVersions": ("sendNumNewerVersionsIfZero", "if there are {} newer ones"),
}
"""Conditions with a number: the flag without which the provider leaves out a zero, and their meaning for people."""
_DATES = {
    "createdBefore": "if they were written before {}",
    "customTimeBefore": "if their custom time is before {}",
    "noncurrentTimeBefore": "if newer ones replaced them before {}",
}
_SELECTORS = {
    "matchesSuffixes": "if their names end in {}",
    "matchesStorageClasses": "if their storage class is {}",
    "sizeAboveBytes": "if they have more than {} bytes",
    "sizeBelowBytes": "if they have fewer than {} bytes",
}
_OF_EARLIER = {"daysSinceNoncurrentTime", "noncurrentTimeBefore", "numNewerVersions"}
"""Conditions that no live version fulfils."""
_STATES = {"LIVE": frozenset({CURRENT}), "ARCHIVED": frozenset({EARLIER})}


def read_bucket(inputs: Inputs) -> list[DeletionRule]:
    """Return the rules of a bucket that delete objects."""
    rules: list[DeletionRule] = []
    for rule in mappings(inputs.get("lifecycleRules")):
        action, condition = rule.get("action"), rule.get("condition")
        if isinstance(action, Mapping) and action.get("type") == "Delete" and isinstance(condition, Mapping):
            rules += _read(condition)
    return rules


def _read(condition: Mapping[str, Any]) -> list[DeletionRule]:
    limits: dict[str, float] = {}
    selectors: dict[str, Hashable] = {}
    phrases = []
    for key, (flag, meaning) in _NUMBERS.items():
        value = condition.get(key)
        if value or (value is not None and condition.get(flag) is True):
            limits[key] = parse_number(value)
            phrases.append(meaning.format(describe_number(limits[key])))
    for key, meaning in _DATES.items():
        if value := condition.get(key):
            limits[key] = -day_number(value) if day_number(value) > 0 else day_number(value)
            phrases.append(meaning.format(str(value)[:10]))
    for key, meaning in _SELECTORS.items():
        if value := condition.get(key):
            values = sorted(map(str, value)) if isinstance(value, list | tuple) else [str(value)]
            selectors[key] = tuple(values)
            phrases.append(meaning.format(" or ".join(values)))
    versions = _STATES.get(str(condition.get("withState")), frozenset({CURRENT, EARLIER}))
    if _OF_EARLIER & limits.keys():
        versions &= {EARLIER}
    days = limits.get("age") if limits.keys() == {"age"} and not selectors else None
    prefixes = condition.get("matchesPrefixes")
    return [
        DeletionRule(str(prefix), versions, ", ".join(phrases) or "at once", limits, selectors, days)
        for prefix in (prefixes if isinstance(prefixes, list | tuple) and prefixes else ("",))
    ]
