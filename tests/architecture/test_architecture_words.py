"""Names are nouns and verbs: the share of everyday words that are bound as names may only fall, in every package."""

import ast
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

EVERYDAY = """
anew aside ask asked asking asks beside both every found give given gives going gone held holds kept known knows leaves
left made makes meant mine named now_of odd of one ones ours owed rest said say saying says see seen sees taken takes
tell telling tells theirs then there these thing things those told wanted wants went what who whose why word
"""
"""Words that do not describe a value: `checkpoint` does, `found` does not."""
WORDS = frozenset(EVERYDAY.split())
FIRST_WORDS = {"asked", "found", "given", "kept", "known", "said", "seen", "told"}
"""Words that no function's name begins with: `describe_lock`, not `told_of_lock`."""
LAST_WORDS = {"asked", "of", "said", "told"}
"""Words that no function's name ends with: `parse_cidr`, not `cidr_of`."""

SLACK = 1.0
"""How far above the measured figure a ceiling may be."""
CEILINGS = {
    "bench": 0.0,
    "cli": 0.0,
    "clouds": 0.0,
    "components": 0.3,
    "core": 0.4,
    "examples": 0.0,
    "localcloud": 0.1,
    "policy": 0.0,
    "review": 0.2,
    "scheduler": 0.0,
    "simulator": 0.3,
    "stacks": 0.0,
    "store": 0.2,
    "tests": 0.2,
    "tools": 0.0,
    "training_image": 0.1,
}
"""Such names per 1,000 lines that each package may have, rounded up to one decimal. Ceilings are only ever lowered."""


def is_everyday(name: str, *, function: bool = False) -> bool:
    bare = name.strip("_")
    first, *others = bare.split("_")
    return bare in WORDS or (function and bool(others) and (first in FIRST_WORDS or others[-1] in LAST_WORDS))


def everyday_names(tree: ast.AST) -> Iterator[str]:
    """Yield each everyday word that a module binds as a function, parameter, variable or attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if is_everyday(node.name, function=True):
                yield node.name
            bound = [arg.arg for arg in ast.iter_child_nodes(node.args) if isinstance(arg, ast.arg)]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound = [node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            bound = [node.attr]
        else:
            continue
        yield from filter(is_everyday, bound)


def measure(package: str) -> float:
    """Return how many everyday words a package binds as names per 1,000 lines."""
    sources = [path.read_text() for path in (ROOT / package).rglob("*.py")]
    names = [name for source in sources for name in everyday_names(ast.parse(source))]
    return 1000 * len(names) / sum(source.count("\n") for source in sources)


def test_every_package_has_a_ceiling() -> None:
    folders = [
        path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "." and next(path.rglob("*.py"), None)
    ]
    assert sorted(CEILINGS) == sorted(path.name for path in folders if path.name not in ("build", "dist"))


@pytest.mark.parametrize("package", CEILINGS)
def test_names_say_what_they_name(package: str) -> None:
    figure, ceiling = measure(package), CEILINGS[package]
    line = f'the line "{package}" of CEILINGS in {Path(__file__).relative_to(ROOT)}'
    assert figure <= ceiling, (
        f"{package}/ binds {figure:.2f} everyday words as names per 1,000 lines and may bind {ceiling}: "
        f"give the new names a noun or a verb, and do not raise {line}"
    )
    lowered = math.ceil(10 * figure) / 10
    assert ceiling - figure <= SLACK, (
        f"{package}/ binds only {figure:.2f} everyday words as names per 1,000 lines: lower {line} to {lowered}"
    )


def test_what_counts_as_an_everyday_name() -> None:
    source = """
def told_of(found, *, checkpoint, **said):
    known: int = 1
    self._held = [one for one in found]
def find_state(told): ...
"""
    names = ["told_of", "found", "said", "known", "_held", "one", "told"]
    assert sorted(everyday_names(ast.parse(source))) == sorted(names)
