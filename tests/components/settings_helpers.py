"""Helpers for tests of a stack's settings: the module that reads them, and settings in the engine's form."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

STACKS = Path(__file__).resolve().parents[2] / "stacks"


@contextmanager
def loaded() -> Iterator[Any]:
    """The module that reads the settings of a stack, as long as it is used."""
    spec = importlib.util.spec_from_file_location("everspot_stack_settings", STACKS / "settings.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STACKS))
        spec.loader.exec_module(module)
        yield module
    for name in (spec.name, "choices", "choice_aws", "choice_gcp", "choice_kubernetes"):
        sys.modules.pop(name, None)


class Config:
    """The settings in the engine's form: every value is a text."""

    name = "everspot"

    def __init__(self, **values: Any) -> None:
        self.values = {name: json.dumps(value) for name, value in values.items()}

    def get(self, name: str) -> str | None:
        return self.values.get(name)


def written(stack: str) -> Config:
    config = yaml.safe_load((STACKS / f"Pulumi.{stack}.yaml").read_text())["config"]
    sections = {key.split(":")[1]: value for key, value in config.items() if key.startswith("everspot:")}
    return Config(**sections)


def refusal(settings: Any, config: Config) -> str:
    with pytest.raises(pulumi.RunError) as refused:
        settings.read_settings(config, stack="dev")
    return str(refused.value)
