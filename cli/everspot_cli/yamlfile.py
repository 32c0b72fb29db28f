"""Reads the YAML files of people: of a bounded size, with errors that name the file."""

from pathlib import Path
from typing import Any

from everspot_core.counting import counted
from everspot_core.validation.yaml_text import NODES, BadYaml, load

from everspot_cli.errors import CliError, Exit, list_problems

MOMENTS = frozenset({"deadline", "start_after"})
"""Fields of a job that may be a moment."""

SIZE = 256 * 1024  # of a job's file; the largest honest one known is two kilobytes


def read_yaml(path: Path, *, size: int = SIZE, nodes: int = NODES) -> Any:
    """Return the content of a file of at most `size` bytes and `nodes` values: None, booleans, numbers, texts, lists
    and mappings.

    Raises:
        CliError: if there is no such file, or it is too large, too deep, no UTF-8 or no YAML, or has values that
            readers of YAML take differently.
    """
    try:
        return load(_text(path, size), nodes=nodes, moments=MOMENTS)
    except BadYaml as error:
        if not error.differences:
            raise CliError(f"{path} {error}") from None
        count = counted(len(error.differences), "value")
        raise CliError(
            f"{path} has {count} that readers of YAML take differently", problems=list_problems(list(error.differences))
        ) from None


def parse_value(text: str, option: str) -> Any:
    """Return the value of an option, written as in a file: a number, a text, a list or a mapping.

    Raises:
        CliError: if it is too deep, or no YAML.
    """
    try:
        return load(text, strict=False)
    except BadYaml as error:
        raise CliError(f"{option} {error}") from None


def _text(path: Path, size: int) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(size + 1)
    except FileNotFoundError:
        raise CliError(f"there is no file {path}", Exit.NOT_FOUND) from None
    except (OSError, ValueError) as error:
        raise CliError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > size:
        raise CliError(f"{path} is larger than {size // 1024} KiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CliError(f"{path} is no text in UTF-8: byte {error.start + 1} is wrong") from None
