"""Each class of the product has a unique name."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
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
FORBIDDEN_WORDS = """
crowd desk doubt errand journey keeper liaison lookout neighbour newcomer parcel purse stray travel
"""
FORBIDDEN = frozenset(FORBIDDEN_WORDS.split())
"""Words that the code once had for concepts of the glossary."""


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


def is_forbidden(name: str) -> bool:
    parts = {part.lower() for part in re.findall("[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}
    return not FORBIDDEN.isdisjoint(parts | {part.removesuffix("s") for part in parts})


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Yield each class, function, parameter, variable and attribute that a module binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def test_no_name_has_a_forbidden_word() -> None:
    offenders: list[str] = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            names = (path.stem, *bound_names(ast.parse(path.read_text())))
            offenders += [f"{path.relative_to(ROOT)}: {name}" for name in names if is_forbidden(name)]
    assert offenders == []


def test_which_names_have_a_forbidden_word() -> None:
    source = """
def _may_travel(purses, *, own_purse, job): self._doubts = [doubtful for doubtful in job]
async def serve(**strays): DESK: int = 1
class Stray(Visit): newcomer = home
"""
    names = ["_may_travel", "purses", "own_purse", "_doubts", "strays", "DESK", "Stray", "newcomer"]
    assert sorted(filter(is_forbidden, bound_names(ast.parse(source)))) == sorted(names)
