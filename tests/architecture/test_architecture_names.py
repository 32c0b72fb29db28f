"""One meaning per name: a class of the product has a name of its own."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("core", "policy", "store", "clouds", "scheduler", "training_image", "cli", "components", "review", "stacks")
"""The rooms of the product. What pretends, in `localcloud/`, is called as what it pretends to be."""


def modules_by_class() -> dict[str, list[str]]:
    """The modules by the public classes that they define."""
    modules: dict[str, list[str]] = defaultdict(list)
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules[node.name].append(str(path.relative_to(ROOT)))
    return modules


def test_a_class_has_a_name_of_its_own() -> None:
    assert {name: where for name, where in modules_by_class().items() if len(where) > 1} == {}
