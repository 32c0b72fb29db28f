#!/usr/bin/env python3
"""Write clouds/everspot_clouds/setting_names.json, the names of all settings by cloud and section, from the schema.

setting_names.py        after `python components/schema.py > components/schema.json`
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = ROOT / "clouds/everspot_clouds/setting_names.json"
SECTIONS = {"bootstrap": "Bootstrap", "account": "AccountSetup", "cluster": "TrainingCluster"}
COMPONENT_PREFIXES = ("Aws", "Gcp")
INSIDE = {"kubernetes": {"cluster": "AwsKubernetesPool"}}
"""The components of the clouds that are inside another one."""


def names(schema: Mapping[str, Any]) -> str:
    """By cloud and section, each setting with those in it: null where it holds a plain value or keys of one's own."""
    components = {
        cloud.lower(): {section: f"{cloud}{kind}" for section, kind in SECTIONS.items()} for cloud in COMPONENT_PREFIXES
    }
    sections = {
        cloud: {
            section: _below(schema, schema["resources"][f"everspot:index:{component}"]["inputProperties"])
            for section, component in own.items()
        }
        for cloud, own in (components | INSIDE).items()
    }
    return json.dumps(sections, indent=1, sort_keys=True) + "\n"


def _below(schema: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, definition in properties.items():
        kind = definition.get("items", definition).get("$ref", "").removeprefix("#/types/")
        inner = schema["types"].get(kind, {}).get("properties")
        settings[name] = _below(schema, inner) if inner else None
    return settings


if __name__ == "__main__":
    WRITTEN.write_text(names(json.loads((ROOT / "components/schema.json").read_text())))
