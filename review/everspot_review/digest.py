"""The digest of a preview's steps. Equal digests mean equal steps, in any order of the engine's work.

The hash covers each resource that does not stay: the operation, the resource's id in the cloud, its provider, its
protection, and every difference of its inputs and of the properties that the engine compared, in full. A secret counts
only as a secret, because the log does not contain its text, so a change of the text goes unnoticed.

The engine generates other random names in each preview (pulumi/pkg, step_generator.go, `randomSeed`). They count as one
name everywhere, and so do digests of texts that contain them. A digest after `sha256:`, as in a container image's name,
is kept.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from everspot_core.cluster.declared import SECRET, secret

from everspot_review.event_log import EventLog, LoggedStep, ResourceState
from everspot_review.values import MISSING, at, differences, opened

ANY_NAME, ANY_HASH = "-(drawn)", "(hash)"
"""What stands in normalized values for the end of a generated name, and for the digest of a text with one."""

_CREATING_OPS = frozenset({"create", "create-replacement"})
_RANDOM_SUFFIX = re.compile(r"[-_]?[0-9a-f]{7,8}(?=$|\.)")
_HASH = re.compile(r"(?<!sha256:)(?<![\w-])(?=[0-9]*[a-f])[0-9a-f]{12,64}(?![\w-])")


def digest(log: EventLog) -> str:
    """SHA-256 in hexadecimal, or an empty text if the preview failed and its steps are unknown."""
    if log.failed:
        return ""
    normalize = build_normalizer(log)
    done = [_step_facts(step, normalize) for step in log.steps if not step.idle]
    return _sum(sorted(done, key=_text))


def _sum(value: Any) -> str:
    return hashlib.sha256(_text(value).encode()).hexdigest()


def _step_facts(step: LoggedStep, normalize: Callable[[Any], Any]) -> list[Any]:
    old, new = step.old, step.new
    before, after = (old.inputs if old else {}), (new.inputs if new else {})
    diffs = [
        [path, kind, _value(compared(old, path), normalize), _value(compared(new, path), normalize)]
        for path, kind in sorted(step.diff.items())
    ]
    changed = [
        [path, _value(old_value, normalize), _value(other, normalize)]
        for path, old_value, other in differences(normalize(before), normalize(after))
    ]
    return [
        step.urn,
        sorted(step.ops),
        normalize(step.provider),
        old.id if old else None,
        [new.protected, new.retained] if new else None,
        [old.protected, old.retained] if old else None,
        sorted(step.keys),
        diffs,
        changed,
    ]


def compared(state: ResourceState | None, path: str) -> Any:
    """Return the value that the engine compared at a path: an input, or the provider's form of it."""
    if state is None:
        return MISSING
    value = at(state.inputs, path)
    return at(state.outputs, path) if value is MISSING else value


def _value(value: Any, normalize: Callable[[Any], Any]) -> list[Any]:
    """Return the value in a list, so that null differs from a missing value."""
    return [] if value is MISSING else [normalize(value)]


def build_normalizer(log: EventLog) -> Callable[[Any], Any]:
    """Return values in a form that is comparable between previews: markers for secrets, and one name in place of each
    generated one."""
    names = {name: stand_in for step in log.steps for name, stand_in in _generated_names(step)}
    if not names:
        return lambda value: _map_texts(value, lambda text: text)
    find = re.compile("|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)))
    hashes: set[str] = set()

    def normalize(text: str) -> str:
        plain = opened(text)
        replaced = find.sub(lambda match: names[match[0]], plain)
        if replaced == plain:
            return text
        hashes.update(_HASH.findall(replaced))
        return replaced

    for step in log.steps:  # first, all hashes: they may be written alone, elsewhere
        if not step.idle and step.new is not None:
            _map_texts(step.new.inputs, normalize)
    return lambda value: _map_texts(
        value, lambda text: _HASH.sub(lambda match: ANY_HASH if match[0] in hashes else match[0], normalize(text))
    )


def _generated_names(step: LoggedStep) -> list[tuple[str, str]]:
    """Return names that the engine drew for a resource that it makes. The provider lists what it filled in itself."""
    if step.new is None or not _CREATING_OPS & set(step.ops):
        return []
    filled = step.new.inputs.get("__defaults")
    generated = []
    for key in filled if isinstance(filled, list) else ():
        name = step.new.inputs.get(str(key))
        if not isinstance(name, str) or not name.casefold().startswith(step.name.casefold()):
            continue
        if _RANDOM_SUFFIX.match(name[len(step.name) :]):
            generated.append((name, f"{step.name}{ANY_NAME}"))
    return generated


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    if secret(value):
        return {"secret": SECRET}
    if isinstance(value, Mapping):
        return {change(str(key)): _map_texts(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_texts(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


NOTHING = _sum([])
"""The digest of a preview that would do nothing."""
