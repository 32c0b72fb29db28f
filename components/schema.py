"""Writes the package's schema: `python components/schema.py > components/schema.json`."""

import json
import sys

from everspot.serving import PACKAGE, list_components
from pulumi.provider.experimental.component import ComponentProvider


def schema() -> str:
    """Return the schema of every component of the package, as indented JSON with sorted keys."""
    text = ComponentProvider(list_components("Aws", "Gcp"), PACKAGE).schema or "{}"
    return json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema())
