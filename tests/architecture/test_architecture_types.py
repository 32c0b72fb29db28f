"""Strict types cover every package and every service of pulumi_aws that a package uses."""

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
FOLDERS = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
TYPED = sorted(p.name for p in FOLDERS if p.name not in ("build", "dist") and next(p.rglob("*.py"), None))


def services(source: str) -> set[str]:
    """The parts of pulumi_aws that a module names: by import, or as an attribute of what it imported."""
    names: set[str] = set()
    if "pulumi_aws" not in source:
        return names
    modules, nodes = set(), list(ast.walk(ast.parse(source)))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pulumi_aws":
            inner = (node.module or "").split(".")[1:]
            names |= {inner[0]} if inner else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name for alias in node.names if alias.name == "pulumi_aws"}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            names.add(node.attr.removesuffix("_output"))
    return names


def read() -> set[str]:
    """The parts that the type checker reads; the others are `Any` to it."""
    rows: list[dict[str, Any]] = SETTINGS["overrides"]
    (row,) = [row for row in rows if row.get("follow_imports") == "normal"]
    return {name.split(".")[1] for name in row["module"] if name.count(".")}


def test_every_folder_with_programs_is_typed() -> None:
    assert SETTINGS["strict"]
    assert sorted(SETTINGS["files"]) == TYPED


def test_tests_are_checked_for_the_names_and_the_parameters_of_what_they_use() -> None:
    (row,) = [row for row in SETTINGS["overrides"] if row["module"] == ["tests.*"]]
    assert not {"attr-defined", "call-arg", "name-defined", "typeddict-unknown-key"} & {*row["disable_error_code"]}
    assert not {"ignore_errors", "follow_imports", "check_untyped_defs"} & row.keys()


@pytest.mark.parametrize("folder", TYPED)
def test_every_service_that_is_used_has_its_types_read(folder: str) -> None:
    used = {name for path in (ROOT / folder).rglob("*.py") for name in services(path.read_text())}
    assert used - read() == set()


def test_a_service_that_is_not_read_is_found() -> None:
    assert services("import pulumi_aws as aws\naws.lex.Bot('b')") == {"lex"}
    assert services("from pulumi_aws import lex") == {"lex"} == services("from pulumi_aws.lex import Bot")
    assert not {"lex"} <= read()
