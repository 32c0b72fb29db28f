import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer
from everspot_cli.main import app
from everspot_cli.registry import COMMANDS
from everspot_cli.specs import RECIPES

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


def test_the_commands_are_these():
    assert list(COMMANDS) == [
        "submit", "rehearse", "retry", "sweep", "jobs", "job", "logs", "cancel", "interrupt", "exec", "forward", "data",
        "pull", "drain", "roll", "down", "instances", "fleet", "federation", "report", "compare", "export",
        "chargeback", "reconcile", "audit", "anomalies", "budget", "commitments", "simulate", "prices", "estimate",
        "init", "ui", "gc", "doctor", "review", "changes", "use", "clusters",
    ]  # fmt: skip


def test_a_module_that_registers_nothing_is_told_in_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "everspot_cli.commands.bare", ModuleType("everspot_cli.commands.bare"))
    monkeypatch.setitem(COMMANDS, "bare", ("bare", "Nothing."))
    with pytest.raises(SystemExit, match=r"everspot_cli\.commands\.bare has no register\(app\)"):
        typer.main.get_command(app).get_command(None, "bare")


def test_the_list_of_commands_says_what_each_says_of_itself():
    commands = typer.main.get_command(app).all()
    assert {name: line for name, (_, line) in COMMANDS.items()} == {
        name: " ".join(command.help.split("\n\n")[0].split()) for name, command in commands.items()
    }


@pytest.mark.parametrize("arguments", [["--help"], ["jobs", "--help"]], ids=" ".join)
def test_a_flag_is_shown_without_a_value_that_it_would_take(world, arguments):
    told = world.run(*arguments)
    assert told.code == 0
    assert "--json" in told.out and "<bool>" not in told.out


DEAR = ("boto3", "botocore", "torch", "pulumi", "moto", "everspot_scheduler", "matplotlib", "numpy", "yaml")
STORED = (*DEAR, "everspot_store", "everspot_core.documents", "obstore")


@pytest.mark.parametrize(
    ("arguments", "without"),
    [
        (["--version"], (*STORED, "rich", "pydantic")),
        (["--help"], STORED),
        (["clusters"], STORED),
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
    [("everspot jo", {"jobs", "job"}), ("everspot jobs --st", {"--state"})],
    ids=["command", "option"],
)
def test_the_shell_completes_commands_and_options(typed, offered):
    env = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_EVERSPOT_COMPLETE": "complete_bash"}
    script = Path(sys.executable).parent / "everspot"
    done = subprocess.run([script], capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **env})
    assert set(done.stdout.split()) == offered
