"""The names of the settings of every section, for checking a file without running its program.

The names are the inputs of the components. `tools/setting_names.py` generates them from the schema, because code that
only reads prices must not load the engine's SDK.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from everspot_core.validation.problems import Problems, near

PROJECT = "everspot"
"""The project's name that `everspot init` writes. It is the namespace of the settings."""
CLOUD = "cloud"


@cache
def load_names() -> Mapping[str, Mapping[str, Any]]:
    """By cloud and section, each setting with the settings in it; None where it holds a value or keys of one's own."""
    text = files("everspot_clouds").joinpath("setting_names.json").read_text(encoding="utf-8")
    names: dict[str, dict[str, Any]] = json.loads(text)
    return names


def check_names(problems: Problems, config: Mapping[str, Any], project: str) -> None:
    """Add every name in the sections of a file's `config` that is no setting there, and each section that is meant as
    another. Other sections of a project are its own. `project`: its name."""
    sections = sorted({section for each in load_names().values() for section in each})
    for key, value in config.items():
        namespace, _, name = str(key).partition(":")
        if namespace != project:
            continue
        if name not in sections:
            suggestion = near(name, sections)
            problems.need(not suggestion, str(key), f"is not a setting{suggestion}")
        elif isinstance(value, Mapping) and (here := load_names().get(str(value.get(CLOUD)), {}).get(name)):
            _check(problems.at(str(key)), value, {CLOUD: None, **here})


def _check(problems: Problems, section: Mapping[str, Any], names: Mapping[str, Any]) -> None:
    problems.unknown(section, names, "is not a setting", listed=True)
    for name, inner in names.items():
        value = section.get(name)
        if inner and isinstance(value, Mapping):
            _check(problems.at(name), value, inner)
        for index, entry in enumerate(value if inner and isinstance(value, list) else ()):
            if isinstance(entry, Mapping):
                _check(problems.at(f"{name}[{index}]"), entry, inner)
