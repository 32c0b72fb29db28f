import subprocess
import sys
from pathlib import Path

from everspot_cli.main import app
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
    assert [command.name for command in app.registered_commands] == [
        "submit", "jobs", "job", "logs", "cancel", "interrupt", "drain", "instances", "report", "compare", "simulate",
        "doctor",
    ]  # fmt: skip


def test_the_command_starts_without_what_only_some_commands_need():
    heavy = ("boto3", "botocore", "torch", "pulumi", "moto", "everspot_scheduler", "matplotlib")
    script = f"import sys, everspot_cli.main; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
