"""Each class of the product has a unique name."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "core",
    "simulator",
    "policy",
    "store",
    "clouds",
    "scheduler",
    "training_image",
    "cli",
    "components",
    "review",
    "stacks",
)
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


def test_no_name_has_a_word_that_the_glossary_forbids() -> None:
    glossary = (ROOT / "docs/internals/glossary.md").read_text()
    listed = glossary.partition("has one of these words in its name: ")[2].partition(".\n")[0]
    forbidden = {part.strip() for part in re.split(r",\s*", listed)}
    assert len(forbidden) > 10
    offenders: list[str] = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            classes = [n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ClassDef)]
            words = {part for name in classes for part in re.findall("[A-Z][a-z]+", name)} | set(path.stem.split("_"))
            if forbidden & {part.lower().removesuffix("s") for part in words}:
                offenders.append(str(path.relative_to(ROOT)))
    assert offenders == []
