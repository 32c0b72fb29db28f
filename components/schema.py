"""Writes the package's schema: `python components/schema.py > components/schema.json`."""

import json
import sys

import everspot
import pulumi
from pulumi.provider.experimental.component import ComponentProvider


def schema() -> str:
    """Return the schema of every component of the package, as indented JSON with sorted keys."""
    kinds = [getattr(everspot, name) for name in everspot.__all__]
    components = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, pulumi.ComponentResource)]
    written = ComponentProvider(components, "everspot").schema or "{}"
    return json.dumps(json.loads(written), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema())
