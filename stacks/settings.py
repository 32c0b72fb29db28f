"""Reads `Pulumi.<stack>.yaml` into the components' own inputs.

A setting is an input of a component in camelCase: there is no second list of them to keep in step. A misspelt name, a
missing one or a value of the wrong kind is an error, and all of them are told at once. What the values mean is checked
by the components.
"""

import inspect
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

import pulumi
from everspot import AccountSetupArgs, InstanceTypeArgs, TrainingClusterArgs
from everspot_core.problems import BadInputs, Problems, camel, near

ENVIRONMENT = "Environment"
"""The tag that is derived from the stack's name where a stack does not set it."""


@dataclass(frozen=True)
class Settings:
    """What one stack declares. `account`: once per account; `cluster`: one training cluster."""

    account: AccountSetupArgs | None
    cluster: TrainingClusterArgs | None


def read_settings(config: pulumi.Config, *, stack: str) -> Settings:
    """The settings of a stack.

    Raises:
        pulumi.RunError: with every setting that is unknown, missing or of the wrong kind.
    """
    problems = Problems()
    account = _section(problems, config, "account", AccountSetupArgs, stack)
    cluster = _section(problems, config, "cluster", TrainingClusterArgs, stack)
    if account is None and cluster is None and not problems.found:
        problems.add("", "a stack declares everspot:account, everspot:cluster or both")
    try:
        problems.raise_any(f"Stack {stack}")
    except BadInputs as bad:
        raise pulumi.RunError(str(bad)) from None  # which the engine shows without a traceback
    return Settings(cast(AccountSetupArgs | None, account), cast(TrainingClusterArgs | None, cluster))


def _section(problems: Problems, config: pulumi.Config, name: str, kind: type, stack: str) -> Any:
    text = config.get(name)
    if text is None:
        return None
    here = problems.at(f"{config.name}:{name}")
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        here.add("", f"has to be a mapping, not {text!r}")
        return None
    parsed = parse(here, "", value, kind)
    if isinstance(parsed, dict):
        parsed["tags"] = {ENVIRONMENT: stack, **parsed.get("tags", {})}
    return parsed


def parse(problems: Problems, name: str, value: Any, kind: Any) -> Any:
    """`value`, as YAML gave it, as a component's input of the annotated kind; problems are added by name."""
    kind = _bare(kind)
    if typing.is_typeddict(kind):
        if kind is InstanceTypeArgs and isinstance(value, str):
            return {"type": value}  # `- g5.xlarge` is short for `- type: g5.xlarge`
        return _mapping(problems.at(name), value, kind)
    origin = typing.get_origin(kind)
    if origin is list:
        if not problems.need(isinstance(value, list), name, f"has to be a list, not {value!r}"):
            return []
        (item,) = typing.get_args(kind)
        return [parse(problems, f"{name}[{index}]", entry, item) for index, entry in enumerate(value)]
    if origin is dict:
        fits = isinstance(value, dict) and all(isinstance(entry, str) for entry in value.values())
        problems.need(fits, name, f"has to be a mapping of texts, not {value!r}")
        return value if fits else {}
    if isinstance(kind, type) and issubclass(kind, Enum):
        kind = str  # the component says which words it allows
    return _plain(problems, name, value, kind)


_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def _plain(problems: Problems, name: str, value: Any, kind: type) -> Any:
    number = kind is float and isinstance(value, int) and not isinstance(value, bool)
    right = number or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool)))
    problems.need(right, name, f"has to be {_WORDS[kind]}, not {value!r}")
    return value if right else kind()


def _mapping(problems: Problems, value: Any, kind: Any) -> dict[str, Any]:
    if not problems.need(isinstance(value, Mapping), "", f"has to be a mapping, not {value!r}"):
        return {}
    hints = inspect.get_annotations(kind)
    names = {camel(key): key for key in hints}
    for setting in value:
        problems.need(setting in names, str(setting), f"is not a setting{near(str(setting), names)}")
    parsed = {}
    for setting, key in names.items():
        if setting in value:
            parsed[key] = parse(problems, setting, value[setting], hints[key])
        elif key in kind.__required_keys__:
            problems.add(setting, "is missing")
    return parsed


def _bare(kind: Any) -> Any:
    """The kind inside NotRequired[…] and pulumi.Input[…]."""
    if typing.get_origin(kind) in (typing.NotRequired, typing.Required):
        return _bare(typing.get_args(kind)[0])
    plain = [arg for arg in typing.get_args(kind) if not isinstance(arg, typing.ForwardRef) and not _promise(arg)]
    union = typing.get_origin(kind) is not None and len(typing.get_args(kind)) > len(plain)
    return plain[0] if union else kind


def _promise(kind: Any) -> bool:
    origin = typing.get_origin(kind)
    return origin is not None and origin not in (list, dict) and not typing.is_typeddict(kind)
