"""The import rule: each room may import the rooms below it and the packages of its trade, nothing else."""

import ast
import functools
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Room → (folder, what it may import beside itself and the standard library).
ROOMS: dict[str, tuple[str, set[str]]] = {
    "everspot_core": ("core", {"pydantic", "numpy", "yaml"}),
    # Only the CLI and the local cloud import it.
    "everspot_simulator": ("simulator", {"everspot_core", "pydantic", "numpy"}),
    "everspot_store": ("store", {"everspot_core", "obstore", "pydantic", "xxhash"}),
    "everspot_clouds": (
        "clouds",
        {
            "everspot_core", "everspot_store", "boto3", "botocore", "google", "requests", "kubernetes", "urllib3",
            "detect_secrets",
        },
    ),
    # The store: what guards a destroy asks it whether jobs run. The last: `everspot.Client`, see below.
    "everspot": (
        "components",
        {"everspot_core", "everspot_store", "everspot_clouds", "pulumi", "pulumi_aws", "pulumi_gcp", "everspot_cli"},
    ),
    # The last row: what it speaks with to the engine.
    "everspot_policy": (
        "policy",
        {
            "everspot_core", "everspot_clouds", "pydantic", "yaml",
            "grpc", "google", "pulumi",
        },
    ),
    "everspot_scheduler": (
        "scheduler",
        {"everspot_core", "everspot_store", "everspot_clouds", "pydantic", "prometheus_client"},
    ),
    "everspot_train": (
        "training_image",
        {
            "everspot_core", "everspot_store", "everspot_clouds",
            "torch", "numpy", "pydantic", "pynvml", "yaml",
            "accelerate", "lightning", "transformers",
        },
    ),
    "everspot_cli": (
        "cli",
        {
            "everspot_core", "everspot_simulator", "everspot_store", "everspot_clouds", "everspot_scheduler",
            "typer", "click", "rich", "yaml", "pydantic", "pathspec", "packaging",
            "numpy", "matplotlib", "pyarrow",
            "jinja2", "markupsafe", "starlette", "uvicorn",  # the page of `everspot ui`
            "everspot_review",  # which `commands/review.py` mounts where it is installed
        },
    ),
    # Only its `engine.py` runs the engine and only its `forge.py` speaks to a forge.
    "everspot_review": (
        "review",
        {"everspot_core", "everspot_store", "everspot_clouds", "pulumi", "pydantic", "typer"},
    ),
    "everspot_local": (
        "localcloud",
        # The last row: what the bridge speaks with, on both of its sides.
        {
            "everspot_core", "everspot_simulator", "everspot_clouds", "moto", "boto3", "botocore",
            "grpc", "msgpack", "google", "typer", "click", "rich", "yaml", "pydantic",
            "cryptography", "werkzeug", "flask", "xmltodict", "numpy",
            "pulumi", "pulumi_aws", "tfplugin5_pb2", "tfplugin5_pb2_grpc",
        },
    ),
    # The last four: its own.
    "stacks": (
        "stacks",
        {"everspot", "everspot_core", "pulumi", "pydantic", "choices", "choice_aws", "choice_gcp", "settings"},
    ),
}  # fmt: skip

# The demo is a user: it drives the product by its public doors, so it may speak of what a user installs.
USERS = {"localcloud/everspot_local/demo"}


@functools.cache  # several tests look at each module
def import_nodes(source: str) -> list[ast.Import | ast.ImportFrom]:
    """The imports of a module, wherever in it."""
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(source: str) -> set[str]:
    """The top-level names that a module imports absolutely, wherever in it."""
    names: set[str] = set()
    for node in import_nodes(source):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


def strangers(room: str, source: str) -> set[str]:
    """What a module of the room imports and may not."""
    return imported(source) - ROOMS[room][1] - {room, "__future__"} - sys.stdlib_module_names


def modules() -> list[tuple[str, Path]]:
    return [
        (room, path)
        for room, (folder, _) in ROOMS.items()
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not any(str(path.relative_to(ROOT)).startswith(user) for user in USERS)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_room_imports_only_what_it_may(room: str) -> None:
    own = (path for owner, path in modules() if owner == room)
    forbidden = {str(path.relative_to(ROOT)): strangers(room, path.read_text()) for path in own}
    assert {path: names for path, names in forbidden.items() if names} == {}


@pytest.mark.parametrize(
    ("room", "planted"),
    [
        ("everspot_core", "import boto3"),
        ("everspot_core", "from everspot_store import Store"),
        ("everspot_core", "from everspot_simulator import run"),
        ("everspot_scheduler", "import everspot_simulator.drive"),
        ("everspot_store", "import everspot_scheduler.loop"),
        ("everspot_clouds", "import everspot_scheduler.cloud"),
        ("everspot_scheduler", "import boto3"),
        ("everspot", "def f():\n    from everspot_scheduler import act"),
        ("everspot_train", "import pulumi"),
        ("everspot_cli", "import torch"),
        ("everspot_scheduler", "import everspot_local"),
        ("everspot_local", "from everspot_store import Store"),
        ("everspot_review", "import everspot"),
        ("everspot_policy", "import pulumi_aws"),
        ("everspot_cli", "from everspot_policy import rules"),
    ],
)
def test_a_planted_bad_import_is_found(room: str, planted: str) -> None:
    assert strangers(room, planted) != set()


def test_components_name_the_python_api_and_use_it_nowhere() -> None:
    users = {
        path.name for room, path in modules() if room == "everspot" and "everspot_cli" in imported(path.read_text())
    }
    assert users == {"__init__.py"}


CIRCLES = {
    frozenset({"everspot_simulator.cluster", "everspot_simulator.interruptions"}),
    frozenset({"everspot_store.resume_from", "everspot_store.store"}),
}
"""Pairs of modules in which one names the other's class as the type of a parameter. The list must not grow."""


def test_no_modules_import_each_other_not_even_for_their_types() -> None:
    paths = {_module_name(path): path for _, path in modules()}
    imports = {name: _imported_modules(path, paths.keys()) - {name} for name, path in paths.items()}
    reachable = {name: _reachable(name, imports) for name in imports}
    circles = {frozenset(m for m in reachable[name] if name in reachable[m]) for name in imports}
    assert {circle for circle in circles if len(circle) > 1} == CIRCLES


CORE = (
    "validation", "capacity", "jobs", "costs", "estimate", "governance", "cluster", "experiments", "schedule",
    "federation",
)  # fmt: skip
"""The folders of core. Each imports only folders that stand before it, as ARCHITECTURE.md says in the same order."""


def test_folders_of_core_import_only_folders_before_them() -> None:
    folders = {path.name for path in (ROOT / "core/everspot_core").iterdir() if (path / "__init__.py").exists()}
    assert folders == set(CORE)
    listed = [line for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines() if line.startswith("| `")]
    places = [listed.index(next(line for line in listed if line.startswith(f"| `{name}/` |"))) for name in CORE]
    assert places == sorted(places)
    paths = {_module_name(path): path for room, path in modules() if room == "everspot_core"}
    backwards = {
        f"{name} imports {target}"
        for name, path in paths.items()
        for target in _imported_modules(path, paths.keys())
        if _core_rank(target) > _core_rank(name)
    }
    assert backwards == set()


def _core_rank(module: str) -> int:
    """Return the index of a module's folder in `CORE`; -1 for a module in no folder."""
    folder = module.split(".")[1] if "." in module else ""
    return CORE.index(folder) if folder in CORE else -1


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported_modules(path: Path, names: Collection[str]) -> set[str]:
    """The modules among `names` that a module imports, wherever in it, and also for type checkers alone."""
    imported_modules: set[str] = set()
    for node in import_nodes(path.read_text()):
        if isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            targets = (f"{node.module}.{alias.name}" for alias in node.names)
            imported_modules |= {target if target in names else node.module for target in targets} & set(names)
        elif isinstance(node, ast.Import):
            imported_modules |= {alias.name for alias in node.names} & set(names)
    return imported_modules


def _reachable(name: str, imports: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    pending = [name]
    while pending:
        for target in imports[pending.pop()] - reached:
            reached.add(target)
            pending.append(target)
    return reached


def test_every_room_is_looked_at() -> None:
    assert {room for room, _ in modules()} == set(ROOMS) - {
        room for room in ROOMS if not list((ROOT / ROOMS[room][0]).rglob("*.py"))
    }
    assert len(modules()) > 20


def test_the_agent_never_imports_torch() -> None:
    agent = list((ROOT / "training_image/everspot_train/agent").rglob("*.py"))
    assert agent
    assert [p for p in agent if "torch" in imported(p.read_text())] == []


def test_a_users_framework_is_imported_by_its_own_module_alone() -> None:
    frameworks = {"accelerate", "lightning", "transformers"}
    users = {path.name: names for _, path in modules() if (names := frameworks & imported(path.read_text()))}
    assert users == {f"{name}.py": {name} for name in frameworks}


def test_the_product_never_imports_the_local_cloud() -> None:
    for room, path in modules():
        if room != "everspot_local":
            assert "everspot_local" not in imported(path.read_text()), path
