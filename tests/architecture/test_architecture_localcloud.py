"""The local cloud's own plan: its parts form layers, and the market, its machines and the controls know no cloud."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "localcloud"
ROOM = "everspot_local"

# Part → the parts of the room that it may import beside itself. Modules in no folder may import everything.
PARTS = {
    "market": set(),
    "machines": {"market"},
    "controls": {"market", "machines"},
    "options": {"market"},
    "aws": {"market", "machines", "options", "body_checks"},
    "gcp": {"market", "machines", "options", "body_checks", "crc32c"},
    "body_checks": {"crc32c"},
    "crc32c": set(),
    "image": {"machines"},
    "kubernetes": {"machines"},
    "bridge": set(),
    "console": set(),
    "demo": {"console", "kubernetes"},
}
NEUTRAL = ("market", "machines", "controls")
# Words of a cloud. "rebalance" and "Spot" are the market's own.
NAMES = re.compile(r"aws|amazon|ec2|\bs3\b|sqs|\biam\b|imds|eventbridge|moto\b|boto|\barn\b|gcp|google", re.IGNORECASE)


def modules() -> dict[str, Path]:
    """Every module of the room by its dotted name."""
    paths = {}
    for path in sorted((ROOT / ROOM).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        paths[name.removesuffix(".__init__")] = path
    return paths


@cache
def imported(source: str) -> list[tuple[str, str]]:
    """What a source imports, wherever in it: in functions, and for type checking alone, too. Each is a module, and a
    name in it that may be a module as well."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [(node.module, alias.name) for alias in node.names]
    return names


def imports(source: str, own_modules: set[str]) -> set[str]:
    """Modules of the room that a source imports."""
    candidates = (
        f"{module}.{name}" if f"{module}.{name}" in own_modules else module for module, name in imported(source)
    )
    return {name for name in candidates if name in own_modules}


def graph(sources: dict[str, str]) -> dict[str, set[str]]:
    return {name: imports(source, set(sources)) - {name} for name, source in sources.items()}


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """Return an import cycle, with the first module also last; empty without a cycle."""
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name not in done:
            for other in sorted(arrows[name]):
                if cycle := walk(other, [*path, name]):
                    return cycle
            done.add(name)
        return []

    return next((first_cycle for name in sorted(arrows) if (first_cycle := walk(name, []))), [])


def part(module: str) -> str:
    """The part that a module belongs to; empty for the edge."""
    second = module.removeprefix(f"{ROOM}.").split(".")[0]
    return second if second in PARTS else ""


def trespasses(arrows: dict[str, set[str]]) -> list[str]:
    """Imports that no row of `PARTS` allows."""
    return [
        f"{module} imports {other}"
        for module, others in arrows.items()
        for other in sorted(others)
        if part(module) and part(other) not in {part(module), *PARTS[part(module)]}
    ]


SOURCES = {name: path.read_text(encoding="utf-8") for name, path in modules().items()}


def test_nothing_is_imported_in_a_circle() -> None:
    assert circle(graph(SOURCES)) == []


def test_the_parts_form_layers() -> None:
    assert trespasses(graph(SOURCES)) == []


def test_every_part_is_there() -> None:
    assert {part(name) for name in SOURCES} == {"", *PARTS}


def test_no_two_classes_share_a_name() -> None:
    classes = [
        node.name for text in SOURCES.values() for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)
    ]
    assert {name for name in classes if classes.count(name) > 1} == set()


@pytest.mark.parametrize("name", [name for name in SOURCES if part(name) in NEUTRAL])
def test_market_machines_and_controls_name_no_cloud(name: str) -> None:
    assert NAMES.findall(SOURCES[name]) == []


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("market.pools", "from everspot_local.market import market"),
        ("market.clock", "def f():\n    from everspot_local.market.market import LocalMarket"),
        ("machines.machine", "if TYPE_CHECKING:\n    from everspot_local.machines.lifecycle import Machines"),
    ],
)
def test_a_planted_circle_is_found(name: str, planted: str) -> None:
    arrows = graph({**SOURCES, f"{ROOM}.{name}": SOURCES[f"{ROOM}.{name}"] + "\n" + planted})
    assert f"{ROOM}.{name}" in circle(arrows)


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("market.pools", "if TYPE_CHECKING:\n    from everspot_local.aws.account import Account"),
        ("machines.lifecycle", "import everspot_local.aws.ec2.instances"),
        ("controls.web", "from everspot_local import cloud"),
        ("aws.sqs", "from everspot_local.controls.actions import Actions"),
        ("gcp.router", "from everspot_local.aws.account import Account"),
        ("aws.sqs", "from everspot_local.gcp.project import Project"),
        ("bridge.plan", "from everspot_local.market.clock import stamp"),
    ],
)
def test_forbidden_import_is_detected(name: str, planted: str) -> None:
    arrows = graph({**SOURCES, f"{ROOM}.{name}": planted})
    assert trespasses(arrows) != []
