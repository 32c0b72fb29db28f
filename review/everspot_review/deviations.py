"""The differences between a reviewed preview and the steps of its update, or the steps that a failed update has left.

Their digests differ: an update knows values that a preview does not, draws other random names, and has done some steps
already. So they are compared resource by resource. A resource may have its reviewed step, or the rest of that step, and
every value that both know has to be the same. No other resource may have a step.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from everspot_core.cluster.declared import SECRET, secret, unknown

from everspot_review.digest import ANY_HASH, ANY_NAME, build_normalizer
from everspot_review.event_log import EventLog, LoggedStep
from everspot_review.jobs import deed
from everspot_review.report import Deed
from everspot_review.values import MISSING, confidential, opened, readable_sides

_LEAVES = {
    Deed.REPLACE: {Deed.REPLACE, Deed.CREATE, Deed.UPDATE, Deed.DELETE},
    Deed.CREATE: {Deed.CREATE, Deed.UPDATE, Deed.REPLACE},
    Deed.IMPORT: {Deed.IMPORT, Deed.UPDATE},
}
"""The operations that may remain of an operation after an interrupted update. A half-created resource is updated or
created again, and of a replacement the deletion of the old resource may remain. Of any other operation only itself may
remain."""

_PATTERNS = {re.escape(ANY_NAME): r"[-_]?[0-9a-f]{7,8}(?:\.[\w.-]+)?", re.escape(ANY_HASH): "[0-9a-f]{12,64}"}
"""What the engine or the program may have generated in the place of a marker."""

_EMPTY: tuple[Any, ...] = (None, "", [], {})

Same = Callable[[str, str], bool]


def list_deviations(reviewed: EventLog, later: EventLog) -> list[str]:
    """Return the steps of a later run, and their values, that are not those of a reviewed preview, for people."""
    same = _text_comparison(reviewed)
    expected = {step.urn: step for step in reviewed.steps if not step.idle}
    deviations = []
    for step in later.steps:
        if step.idle or step.grouping:
            continue
        review = expected.get(step.urn)
        if review is None or deed(step) not in _LEAVES.get(deed(review), {deed(review)}):
            deviations.append(f"{step.name} ({deed(step).value})")
        else:
            deviations += _value_deviations(review, step, same)
    return deviations


def _value_deviations(review: LoggedStep, step: LoggedStep, same: Same) -> Iterator[str]:
    if review.new is None or step.new is None:
        return
    if (review.new.protected, review.new.retained) != (step.new.protected, step.new.retained):
        yield f"{step.name} (its protection)"
    for path, reviewed_value, value in _differences(review.new.inputs, step.new.inputs, same):
        hide = confidential(review.new.inputs, path) or confidential(step.new.inputs, path)
        before, after = readable_sides(reviewed_value, value, hide=hide)
        yield f"{step.name}.{path} ({after or 'nothing'} instead of {before or 'nothing'})"


def _differences(reviewed: Any, value: Any, same: Same, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the places where two values differ that are both known, with both sides, or MISSING."""
    if unknown(reviewed) or unknown(value) or (secret(reviewed) and secret(value)):
        return
    if isinstance(reviewed, Mapping) and isinstance(value, Mapping) and not secret(reviewed) and not secret(value):
        for key in sorted({*reviewed, *value}, key=str):
            if not str(key).startswith("__"):  # of the engine and the provider, such as the list of defaults
                below = f"{path}.{key}" if path else str(key)
                yield from _differences(reviewed.get(key, MISSING), value.get(key, MISSING), same, below)
    elif isinstance(reviewed, list) and isinstance(value, list):
        for index in range(max(len(reviewed), len(value))):
            before, after = (side[index] if index < len(side) else MISSING for side in (reviewed, value))
            yield from _differences(before, after, same, f"{path}[{index}]")
    elif isinstance(reviewed, str) and isinstance(value, str):
        if not same(reviewed, value):
            yield path, reviewed, value
    elif reviewed != value and not (_is_empty(reviewed) and _is_empty(value)):
        yield path, reviewed, value


def _is_empty(value: Any) -> bool:
    return value is MISSING or value in _EMPTY


def _text_comparison(reviewed: EventLog) -> Same:
    """Return the comparison of a text of a preview with one of a later run, which has other generated names."""
    normalize = build_normalizer(reviewed)

    def same(expected: str, text: str) -> bool:
        if expected == text or SECRET in expected or SECRET in text:  # the engine hides parts of texts, too
            return True
        normalized = str(normalize(expected))
        if normalized == expected:
            return False
        pattern = re.escape(normalized)
        for marker, generated in _PATTERNS.items():
            pattern = pattern.replace(marker, generated)
        return re.fullmatch(pattern, opened(text), re.DOTALL | re.IGNORECASE) is not None

    return same
