"""Tags of settings as labels: lower-case keys without colons, and checks of what Google Cloud would refuse.

Source: Compute Engine documentation, "Label resources", requirements for labels: at most 64 on a resource; keys begin
with a lower-case letter; keys and values have at most 63 characters, lower-case letters, digits, `_` and `-`; empty
values are allowed. Other alphabets, which are allowed too, are refused here, because not every tool takes them.
"""

import re
from collections.abc import Mapping

from everspot_core.validation.problems import Problems, shown

LABELS_AT_MOST = 64
_KEY = re.compile(r"^[a-z][a-z0-9_-]{0,62}\Z")
_VALUE = re.compile(r"^[a-z0-9_-]{0,63}\Z")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

RESERVED = ("everspot-", "goog")
"""How keys begin that users may not set: Everspot's own, and Google's."""


def label_key(tag: str) -> str:
    """Return the key of a tag's label: `ModelVersion` is `model-version`."""
    return _WORD.sub("-", tag).lower()


def to_labels(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags as labels. `label_problems` says which cannot be ones."""
    return {label_key(key): value for key, value in tags.items()}


def label_problems(problems: Problems, tags: Mapping[str, object], *, own: int) -> None:
    """Add a problem for each tag that is no valid label, under the tag's key. `own`: number of labels that are added to
    these on the resource with the most."""
    most = LABELS_AT_MOST - own
    problems.need(len(tags) <= most, "", f"at most {most} tags of one's own, {len(tags)} are given: Google allows 64")
    keys: dict[str, str] = {}
    for key, value in tags.items():
        name, label = shown(key).strip("'\""), label_key(key)
        same = keys.setdefault(label, key)
        problems.need(same == key, name, f"has the same label as {same}: {label}")
        problems.need(bool(_KEY.match(label)), name, f"has no label: {shown(label)} is no letter and up to 62 {_SET}")
        for prefix in RESERVED:
            problems.need(not label.startswith(prefix), name, f"labels that begin with {prefix} cannot be set")
        if not problems.need(isinstance(value, str), name, f"has to be a text, not {shown(value)}"):
            continue
        lower = str(value).lower()
        better = f"; {shown(lower)} would do" if _VALUE.match(lower) else ""
        problems.need(bool(_VALUE.match(str(value))), name, f"{shown(value)} is not a label: up to 63 {_SET}{better}")


_SET = "lower-case letters, digits, _ and -"
