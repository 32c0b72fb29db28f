"""Reads `Pulumi.<stack>.yaml` into the components' own inputs.

`cloud` selects the cloud of a section's component. Every other setting is an input of that component in camelCase, so
there is no second list of inputs to maintain. A misspelt name, a missing input or a value of the wrong type is an
error, and one error reports all of them. The components check what the values mean. If an input is misspelt or of the
wrong type, their rules still check the other inputs, so that the same error has both.
"""

import inspect
import json
import math
import re
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pulumi
from choices import CHOICES, CloudChoice
from everspot.common import MAX_CLUSTER_NAME
from everspot_core.validation.problems import BadInputs, Problems, camel, near, shown

PREFIX = "everspot-"
"""The prefix of a cluster's name, before the name of its stack."""

BOOTSTRAP = "everspot-bootstrap"
"""How the names of the bootstrap's roles begin."""

ENVIRONMENT = "Environment"
"""The tag that is derived from the stack's name where a stack does not set it."""
LARGEST_SETTING = 256 * 1024
"""Characters of one section, as the engine hands it over: aliases are resolved by then, so this bounds them too."""

DEEPEST_SETTING = 12
"""Levels of one section. The deepest input of a component has four."""


CLOUD = "cloud"
"""The setting that selects the cloud."""

SECTIONS = ("bootstrap", "account", "cluster")
"""The sections that a stack may declare."""


@dataclass(frozen=True)
class Section:
    """One component that a stack declares: its cloud and its inputs."""

    cloud: str
    args: dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What one stack declares. `bootstrap` and `account`: once per account; `cluster`: one training cluster."""

    bootstrap: Section | None
    account: Section | None
    cluster: Section | None

    @property
    def clouds(self) -> list[str]:
        """The clouds that are in it, each once."""
        return list(dict.fromkeys(s.cloud for s in (self.bootstrap, self.account, self.cluster) if s is not None))


def read_settings(config: pulumi.Config, *, stack: str) -> Settings:
    """The settings of a stack.

    Raises:
        pulumi.RunError: with every setting that is unknown, missing or of the wrong kind.
    """
    problems = Problems()
    sections = {name: _section(problems, config, name, stack) for name in SECTIONS}
    if config.get("cluster") is not None:
        _check_stack(problems, stack)
    if problems.collected:
        for name, section in sections.items():
            if section is not None:
                _add_rules(problems, f"{config.name}:{name}", name, section, stack)
    if not any(sections.values()) and not problems.collected:
        problems.add("", "a stack declares everspot:account, everspot:cluster or both, or everspot:bootstrap")
    try:
        problems.raise_any(f"Stack {stack}")
    except BadInputs as bad:
        raise pulumi.RunError(str(bad)) from None  # which the engine shows without a traceback
    return Settings(**sections)


def _add_rules(problems: Problems, prefix: str, name: str, section: Section, stack: str) -> None:
    """Add the problems that the components' own rules find in the valid part of a section.

    A problem is left out if its path is inside an input that was already reported, or contains one, because the rules
    saw a stand-in there.
    """
    reported = [problem.path for problem in problems.collected]
    rule_problems = Problems(prefix)
    sound = _name_fits(stack)
    CHOICES[section.cloud].add_problems(rule_problems, name, cluster_name(stack if sound else "dev"), section.args)
    for problem in rule_problems.collected:
        if not any(_within(problem.path, path) or _within(path, problem.path) for path in reported if path):
            problems.add(problem.path, problem.reason)


def _within(path: str, whole: str) -> bool:
    return path == whole or path.startswith((f"{whole}.", f"{whole}["))


def cluster_name(stack: str) -> str:
    """Name of the cluster that a stack declares."""
    return f"{PREFIX}{stack}"


def _check_stack(problems: Problems, stack: str) -> None:
    room = MAX_CLUSTER_NAME - len(PREFIX)
    problems.need(
        len(stack) <= room,
        "",
        f"the stack's name has {len(stack)} characters and may have {room}: with {PREFIX} before it, it names the "
        f"cluster, and {MAX_CLUSTER_NAME} characters of that fit into the names of roles and buckets",
    )
    problems.need(
        _plain_name(stack), "", f"the stack's name, {stack!r}, names the cluster: lower-case letters, digits and dashes"
    )

    problems.need(
        not f"{PREFIX}{stack}-".startswith(f"{BOOTSTRAP}-"),
        "",
        f"the stack's name, {stack!r}, names the cluster {PREFIX}{stack}: roles whose names begin with {BOOTSTRAP}- "
        "are the bootstrap's, and no deployment may change them",
    )


def _plain_name(stack: str) -> bool:
    return all(c in "abcdefghijklmnopqrstuvwxyz0123456789-" for c in stack) and not stack.endswith("-")


def _name_fits(stack: str) -> bool:
    return _plain_name(stack) and len(stack) <= MAX_CLUSTER_NAME - len(PREFIX)


def _section(problems: Problems, config: pulumi.Config, name: str, stack: str) -> Section | None:
    text = config.get(name)
    if text is None:
        return None
    here = problems.at(f"{config.name}:{name}")
    value = _read(here, text)
    if value is None or not here.need(isinstance(value, dict), "", f"has to be a mapping, not {shown(value)}"):
        return None
    cloud = value.pop(CLOUD, None)
    if not isinstance(cloud, str) or cloud not in CHOICES:
        problem = "is missing" if cloud is None else f"{shown(cloud)} is none{near(str(cloud), CHOICES)}"
        here.add(CLOUD, f"{problem}; there is {', '.join(CHOICES)}")
        return None
    choice = CHOICES[cloud]
    if (args := getattr(choice, f"{name}_args")) is None:
        here.add(CLOUD, f"{cloud} has no {name} of its own: it is that of the cloud that its nodes are from")
        return None
    parsed = parse(here, "", value, args, cloud=choice)
    parsed["tags"] = {ENVIRONMENT: stack, **parsed.get("tags", {})}
    return Section(cloud, parsed)


def _read(here: Problems, text: str) -> Any:
    """The value that a section's JSON holds, or None and a problem."""
    if len(text) > LARGEST_SETTING:
        here.add("", f"has {len(text)} characters; a section holds {LARGEST_SETTING}")
        return None
    try:
        value = json.loads(text, parse_constant=_no_number)
        deep = _deeper_than(value, DEEPEST_SETTING)
    except RecursionError:
        deep = True
    except ValueError:
        here.add("", f"has to be a mapping of plain values, not {shown(text)}")
        return None
    if deep:
        here.add("", f"is nested deeper than {DEEPEST_SETTING} levels")
        return None
    here.need(value is not None, "", "is empty")
    return value


def _no_number(token: str) -> float:
    raise ValueError(f"{token} is not a number")


def _deeper_than(value: Any, levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        layer = [
            part
            for whole in layer
            if isinstance(whole, dict | list)
            for part in (whole.values() if isinstance(whole, dict) else whole)
        ]
        if not layer:
            return False
    return True


def parse(problems: Problems, name: str, value: Any, kind: Any, *, cloud: CloudChoice, path: str = "") -> Any:
    """`value`, as YAML gave it, as a component's input of the annotated kind; problems are added by name.

    `cloud`: whose component it is. An input that its `short` names can be written as one text, which is then the value
    of that key: `- g5.xlarge` is `- type: g5.xlarge`. `path`: of the setting, without positions in lists.
    """
    kind = _bare(kind)
    if typing.is_typeddict(kind):
        if kind in cloud.short and isinstance(value, str):
            return {cloud.short[kind]: value}
        return _mapping(problems.at(name), value, kind, cloud, path)
    origin = typing.get_origin(kind)
    if origin is list:
        if not problems.need(isinstance(value, list), name, f"has to be a list, not {shown(value)}"):
            return []
        (item,) = typing.get_args(kind)
        return [
            parse(problems, f"{name}[{index}]", entry, item, cloud=cloud, path=path)
            for index, entry in enumerate(value)
        ]
    if origin is dict:
        return _table(problems, name, value, typing.get_args(kind)[1])
    if isinstance(kind, type) and issubclass(kind, Enum):
        kind = str  # the component says which words it allows
    return _plain(problems, name, value, kind)


def _table(problems: Problems, name: str, value: Any, kind: type) -> dict[str, Any]:
    """A mapping whose keys are the user's own, and whose values are all of one plain kind. Wrong ones are left out."""
    if not problems.need(isinstance(value, dict), name, f"has to be a mapping of {_MANY[kind]}, not {shown(value)}"):
        return {}
    here = problems.at(name)
    for key, entry in value.items():
        quote = ": put it into quotes" if kind is str else ""
        here.need(_fits(entry, kind), str(key), f"has to be {_WORDS[kind]}, not {shown(entry)}{quote}")
        _check_date(here, str(key), entry)
    return {key: entry for key, entry in value.items() if _fits(entry, kind)}


_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
_MANY = {str: "texts", float: "numbers"}


def _plain(problems: Problems, name: str, value: Any, kind: type) -> Any:
    right = _fits(value, kind)
    number = kind is str and isinstance(value, int | float) and not isinstance(value, bool)
    unit = f": in quotes, and a duration with its unit, as in {value}s" if number else ""
    problems.need(right, name, f"has to be {_WORDS[kind]}, not {shown(value)}{unit}")
    _check_date(problems, name, value)
    return value if right else _stand_in(kind)


_ENGINES_DATE = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T][0-9:.]{8,}(?: ?[+-][0-9]{4} [A-Z]+|Z)")
"""The form of an unquoted date of the file, as the engine passes it on: Go's `time.Time` as a text."""


def _check_date(problems: Problems, name: str, value: Any) -> None:
    date = _ENGINES_DATE.fullmatch(value) if isinstance(value, str) else None
    problems.need(date is None, name, f'is a date to the engine: put it into quotes, "{date and date[1]}"')


def _stand_in(kind: Any) -> Any:
    """Return a stand-in for a mandatory input that is missing or of the wrong type, so that the rules can check the
    others.

    A number is replaced by NaN, which fails every range check.
    """
    kind = _bare(kind)
    if typing.is_typeddict(kind):
        hints = inspect.get_annotations(kind)
        return {key: _stand_in(hints[key]) for key in hints if key in kind.__required_keys__}
    if kind in (int, float):
        return math.nan
    return (typing.get_origin(kind) or kind)()


def _fits(value: Any, kind: type) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is float:  # JSON's 1e999 is read as infinite, and a longer whole number than that is no float at all
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    return isinstance(value, kind)


def _mapping(problems: Problems, value: Any, kind: Any, cloud: CloudChoice, path: str) -> dict[str, Any]:
    if not problems.need(isinstance(value, Mapping), "", f"has to be a mapping, not {shown(value)}"):
        return typing.cast(dict[str, Any], _stand_in(kind))
    hints = inspect.get_annotations(kind)
    names = {camel(key): key for key in hints}
    before = f"{path}." if path else ""
    lacking = [name for name in value if f"{before}{name}" in cloud.lacks and name not in names]
    for name in lacking:
        problems.add(name, f"is another cloud's setting: {cloud.lacks[f'{before}{name}']}")
    problems.unknown([name for name in value if name not in lacking], names, "is not a setting", listed=True)
    parsed = {}
    for setting, key in names.items():
        if setting in value:
            problems_before = len(problems.collected)
            parsed[key] = parse(problems, setting, value[setting], hints[key], cloud=cloud, path=f"{before}{setting}")
            number = _bare(hints[key]) in (int, float)
            if number and len(problems.collected) > problems_before and key not in kind.__required_keys__:
                del parsed[key]
        elif key in kind.__required_keys__:
            problems.add(setting, "is missing")
            parsed[key] = _stand_in(hints[key])
    return parsed


def _bare(kind: Any) -> Any:
    """The kind inside NotRequired[…] and pulumi.Input[…]."""
    origin = typing.get_origin(kind)
    if origin in (typing.NotRequired, typing.Required):
        return _bare(typing.get_args(kind)[0])
    if origin in (typing.Union, types.UnionType):
        # An Input is the plain kind, or a promise of it: an awaitable or an Output, which no file can hold.
        return next(arg for arg in typing.get_args(kind) if not _promise(arg))
    return kind


def _promise(kind: Any) -> bool:
    origin = typing.get_origin(kind)
    return isinstance(kind, typing.ForwardRef) or (origin is not None and origin not in (list, dict))
