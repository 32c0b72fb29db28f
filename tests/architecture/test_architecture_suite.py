"""The suite's schedule: the order of the test files, and their workers."""

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(eq=False)
class Worker:
    """A stand-in for a worker of pytest-xdist that records its files."""

    number: int
    names: list[str]
    units: list[list[str]] = field(default_factory=list)
    shutting_down: bool = False

    @property
    def gateway(self) -> SimpleNamespace:
        return SimpleNamespace(id=f"gw{self.number}")

    def send_runtest_some(self, indices: list[int]) -> None:
        self.units.append([self.names[index] for index in indices])

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.fixture
def plan() -> ModuleType:
    """tests/conftest.py, once more."""
    spec = importlib.util.spec_from_file_location("plan_of_the_suite", ROOT / "tests/conftest.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_the_plan_names_is_there_and_the_makefile_leaves_the_order_to_it(plan: ModuleType) -> None:
    files = [str(path.relative_to(ROOT / "tests")) for path in (ROOT / "tests").rglob("test_*.py")]
    prefixes = [*plan.WAITING, *plan.COMPUTING, *plan.TOGETHER]
    assert [name for name in prefixes if not any(file.startswith(name) for file in files)] == []
    # Left to itself pytest-xdist begins with the files of the most tests, which are the quickest here.
    assert (ROOT / "Makefile").read_text().count("--dist loadfile --no-loadscope-reorder") == 3


def test_every_other_worker_begins_with_what_computes_and_they_meet_where_it_is_short(plan: ModuleType) -> None:
    names = [
        "core/test_core_cost", "policy/test_policy_pack", "components/test_components_bounds",
        "agent/test_agent_shared_jobs", "engine/test_engine_guard", "engine/test_engine_replace",
        "components/test_components_shapes",
    ]  # fmt: skip
    items = [SimpleNamespace(path=ROOT / f"tests/{name}.py") for name in names]
    plan.pytest_collection_modifyitems(items)
    ids = [f"{item.path.relative_to(ROOT)}::test" for item in items]
    options = {"dist": "loadfile", "tx": ["2*popen"], "loadscopereorder": False}
    config: Any = SimpleNamespace(getoption=options.get, getvalue=options.get, option=SimpleNamespace(**options))
    scheduling = plan.pytest_xdist_make_scheduler(config, None)
    workers = [Worker(number, [item.path.stem for item in items]) for number in (0, 1)]
    for worker in workers:
        scheduling.add_node(worker)
        scheduling.add_node_collection(worker, ids)
    scheduling.schedule()
    waits, computes = workers
    assert waits.units == [["test_engine_replace"], ["test_engine_guard"]]
    assert computes.units == [["test_components_bounds", "test_components_shapes"], ["test_core_cost"]]
    scheduling.mark_test_complete(waits, ids.index("tests/engine/test_engine_replace.py::test"))
    assert waits.units[2:] == [["test_agent_shared_jobs"]] and not waits.shutting_down
