"""What can be said of an environment's settings file without running anything: that it is one."""

from pathlib import Path
from typing import Any

import yaml

SECTIONS = ("config", "secretsprovider", "encryptionsalt", "encryptedkey", "environment")
"""What the engine reads of a stack's settings (pulumi/sdk, workspace/project.go, `ProjectStack`)."""

LARGEST = 1 << 20


class _Strict(yaml.SafeLoader):
    """Refuses a key that is written twice, of which YAML's reader would keep the last without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} is written twice", key.start_mark)
            seen.add(str(key.value))
        return dict(super().construct_mapping(node, deep=deep))


def problems(path: Path) -> list[str]:
    """All that is wrong with a settings file, in sentences; the program says what its settings mean."""
    try:
        if path.is_symlink():
            return ["is a link: write the settings into the file itself"]
        if path.stat().st_size > LARGEST:
            return [f"has {path.stat().st_size} bytes; {LARGEST} are allowed"]
        found: Any = yaml.load(path.read_text(encoding="utf-8"), Loader=_Strict)  # noqa: S506 - a safe one, but stricter
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        return [f"cannot be read: {' '.join(str(error).split())[:300]}"]
    if not isinstance(found, dict):
        return ["has to be a mapping with `config`"]
    told = [
        f"{key!r} is nothing that Pulumi reads; there is {', '.join(SECTIONS)}" for key in found if key not in SECTIONS
    ]
    config = found.get("config")
    if config is None:
        return told
    if not isinstance(config, dict):
        return [*told, "`config` has to be a mapping"]
    return told + [f"config.{key}: has to be NAMESPACE:NAME" for key in config if ":" not in str(key).strip(":")]
