"""The settings files of stacks, as commands read them."""

from pathlib import Path
from typing import Annotated, Any

import typer
from everspot_clouds.price_files import PROJECT_FILE, find_project
from everspot_clouds.setting_names import PROJECT

from everspot_cli.errors import CliError, Exit
from everspot_cli.yamlfile import read_yaml

STACKS = Path("stacks")
"""Folder of the settings files."""

SettingsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        help="A stack's settings, Pulumi.STACK.yaml; repeatable. Default: all in stacks/.",
    ),
]


def settings_files(files: list[Path] | None) -> list[Path]:
    """Return the settings files of the options, or those in `stacks/`.

    Raises:
        CliError: if there are no such files.
    """
    paths = files or sorted(STACKS.glob("Pulumi.*.yaml"))
    if not paths:
        raise CliError(
            f"there are no settings in {STACKS}/", Exit.NOT_FOUND, hint="--settings stacks/Pulumi.STACK.yaml"
        )
    return paths


def stack_name(file: Path) -> str:
    """Return the stack's name, from the name of its file."""
    return file.name.removeprefix("Pulumi.").removesuffix(".yaml")


def project_name(file: Path) -> str:
    """Return the name of the project that a settings file belongs to, which is the namespace of its settings.

    Raises:
        CliError: if its Pulumi.yaml cannot be read.
    """
    folder = find_project(file.parent)
    declared = read_yaml(folder / PROJECT_FILE) if folder is not None else None
    return str(declared.get("name") or PROJECT) if isinstance(declared, dict) else PROJECT


def read_config(file: Path) -> dict[str, Any]:
    """Return the `config` of a settings file.

    Raises:
        CliError: if it has none or cannot be read.
    """
    document = read_yaml(file)
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict):
        raise CliError(f"{file} has no config: it is no stack's settings", hint="name a file such as Pulumi.prod.yaml")
    return config
