import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from everspot_cli.main import app
from everspot_cli.registry import ALIASES, COMMANDS, GROUPS, CommandEntry
from everspot_core.jobs.recipes import RECIPES

ROOT = Path(__file__).parents[2]


def test_the_references_are_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "tools/reference.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_every_recipe_that_is_allowed_exists_in_the_image():
    for recipe in RECIPES:
        assert (ROOT / "training_image/everspot_train/recipes" / f"{recipe.replace('-', '_')}.py").is_file()


def test_commands_by_group():
    assert list(COMMANDS) == [
        "submit", "rehearse", "retry", "sweep", "plan", "ab", "jobs", "job", "top", "profile", "tensorboard", "logs",
        "cancel", "exec", "forward", "data", "pull", "gc", "instances", "fleet", "gpus", "federation", "doctor",
        "cluster", "cost", "init", "preflight", "review", "changes", "simulate", "ui",
    ]  # fmt: skip
    assert {group: list(entries) for group, entries in GROUPS.items()} == {
        "cluster": ["use", "list", "drain", "roll", "down", "interrupt"],
        "cost": ["report", "compare", "chargeback", "export", "reconcile", "audit", "anomalies", "commitments",
                 "estimate", "prices", "budget"],
    }  # fmt: skip


def test_help_lists_commands_below_at_most_nine_headings(world):
    assert 5 < len({entry.panel for entry in COMMANDS.values()}) <= 9
    printed = world.run("--help").out
    assert all(f" {entry.panel} " in printed for entry in COMMANDS.values())


@pytest.mark.parametrize("alias", ALIASES)
def test_old_names_run_the_same_command_and_are_hidden(world, alias):
    group, name = ALIASES[alias]
    old, new = world.run(alias, "--help"), world.run(group, name, "--help")
    assert (old.code, new.code) == (0, 0)
    assert old.out.replace(f"everspot {alias} ", "") == new.out.replace(f"everspot {group} {name} ", "") or (
        old.out.split("\n", 3)[3] == new.out.split("\n", 3)[3]
    )
    assert alias not in COMMANDS


def test_an_unknown_command_of_a_group_is_a_usage_error(world):
    result = world.run("cost", "nothing")
    assert result.code == 2
    assert "No such command 'nothing'" in result.err


def test_a_module_without_register_is_reported_in_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "everspot_cli.commands.bare", ModuleType("everspot_cli.commands.bare"))
    monkeypatch.setitem(COMMANDS, "bare", CommandEntry("bare", "Nothing."))
    group: Any = typer.main.get_command(app)
    with pytest.raises(SystemExit, match=r"everspot_cli\.commands\.bare has no register\(app\)"):
        group.get_command(None, "bare")


def test_summaries_are_the_first_lines_of_the_commands_help():
    group: Any = typer.main.get_command(app)
    tables = {"": COMMANDS, **{f"{name} ": entries for name, entries in GROUPS.items()}}
    summaries = {
        prefix + name: entry.summary
        for prefix, entries in tables.items()
        for name, entry in entries.items()
        if entry.module is not None
    }
    assert summaries == {name: " ".join(command.help.split("\n\n")[0].split()) for name, command in group.all().items()}


@pytest.mark.parametrize("arguments", [["--help"], ["jobs", "--help"]], ids=" ".join)
def test_a_flag_is_shown_without_a_value_that_it_would_take(world, arguments):
    answer = world.run(*arguments)
    assert answer.code == 0
    assert "--json" in answer.out and "<bool>" not in answer.out


DEAR = ("boto3", "botocore", "torch", "pulumi", "moto", "everspot_scheduler", "matplotlib", "numpy", "yaml")
STORED = (*DEAR, "everspot_store", "everspot_core.documents", "obstore")


@pytest.mark.parametrize(
    ("arguments", "without"),
    [
        (["--version"], (*STORED, "rich", "pydantic")),
        (["--help"], STORED),
        (["cluster", "list"], STORED),
        (["jobs", "--active"], DEAR),
    ],
    ids=" ".join,
)
def test_a_command_imports_nothing_that_it_does_not_need(world, arguments, without):
    script = (
        f"import sys; from everspot_cli.main import main\n"
        f"try:\n    main({arguments!r})\n"
        f"finally:\n    print('loaded:', sorted(m for m in {without!r} if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "EVERSPOT_STORE": world.url},
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "loaded: []"), done.stderr


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("everspot jo", {"jobs", "job"}),
        ("everspot jobs --st", {"--state"}),
        ("everspot cost re", {"report", "reconcile"}),
        ("everspot rep", set()),
    ],
    ids=["command", "option", "command of a group", "old name"],
)
def test_the_shell_completes_commands_and_options(typed, offered):
    env = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_EVERSPOT_COMPLETE": "complete_bash"}
    script = Path(sys.executable).parent / "everspot"
    done = subprocess.run([script], capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **env})
    assert set(done.stdout.split()) == offered
