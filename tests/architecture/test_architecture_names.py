"""One meaning per name: a class of the product has a name of its own. The list of those that have none may only
shrink."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("core", "store", "clouds", "scheduler", "training_image", "cli", "components", "stacks")
"""The rooms of the product. What pretends, in `localcloud/`, is called as what it pretends to be."""

# By rooms that do not see each other, or by what a thing is for two sides.
TWICE = {
    "Action": "a choice of a command: of `everspot budget` and of `everspot prices`",
    "Cap": "of what is launched in a plan, and of what an hour of a stack costs",
    "Desk": "what the scheduler launched, and what an agent was told",
    "Faults": "what the scheduler finds wrong with instances, and what a test makes wrong with a store",
    "Figures": "a simulation's, and the scheduler's",
    "Launcher": "of instances, and of a program's process",
    "Leave": "the plan's action, and what an agent does about it",
    "Outlook": "the plan's of one job, and a submission's",
    "Part": "of a changeover, and of a checkpoint",
    "Placement": "of an allocation, and a cloud's scores of it",
    "Refusal": "of an allocation, and of a launch",
    "Resident": "the stored word, and the agent's process of it",
    "Stop": "the plan's action, and what an agent does about it",
    "Watch": "of a cluster, and of an instance's notices",
}


def named() -> dict[str, list[str]]:
    """The modules by the public classes that they define."""
    found: dict[str, list[str]] = defaultdict(list)
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(path.relative_to(ROOT)))
    return found


def test_a_class_has_a_name_of_its_own() -> None:
    twice = {name: where for name, where in named().items() if len(where) > 1}
    assert {name: where for name, where in twice.items() if name not in TWICE} == {}
    assert all(len(where) == 2 for where in twice.values())


def test_every_exception_is_still_needed() -> None:
    found = named()
    assert [name for name in TWICE if len(found[name]) < 2] == []
