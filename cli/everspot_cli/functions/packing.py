"""The code of a job that calls a function."""

import importlib
import inspect
import shutil
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

from everspot_store.code import LEFT_OUT

from everspot_cli import userconfig
from everspot_cli.commands.submit.ignore_file import ignored_in
from everspot_cli.errors import CliError
from everspot_cli.functions import run_function
from everspot_cli.functions.run_function import SCRIPT
from everspot_cli.functions.source import SourceCollector, is_installed

CELLS = "everspot_cells"
"""The module with the source of a function of a notebook or a script."""


def pack_function(function: Callable[..., Any], code: Any, folder: Path) -> tuple[str, str, Path]:
    """Lay out the code of a job in a new folder: what the function's module imports, and the script that calls it.

    Args:
        function: the function.
        code: the field `code` of the job; None: not given.
        folder: the new folder.

    Returns:
        The module, the function's name in it, and the folder.

    Raises:
        CliError: if the function cannot go along.
    """
    plain = inspect.unwrap(function)
    assert isinstance(plain, FunctionType)  # noqa: S101  the decorator takes no other
    root = _code_folder(plain, code)
    if root is not None:
        _copy(root, folder)
    else:
        folder.mkdir()
    script = folder / SCRIPT
    if script.exists() or (folder / f"{CELLS}.py").exists():
        raise CliError(f"{plain.__name__}: {root} has a file {SCRIPT} or {CELLS}.py, which is the job's own")
    shutil.copyfile(run_function.__file__, script)
    if plain.__module__ != "__main__":
        return plain.__module__, plain.__qualname__, folder
    collector = SourceCollector(plain, root)
    collector.add_function()
    if collector.problems:
        raise CliError("; ".join(collector.problems))
    (folder / f"{CELLS}.py").write_text(collector.text(), encoding="utf-8")
    return CELLS, plain.__qualname__, folder


def _code_folder(function: FunctionType, code: Any) -> Path | None:
    """Return the folder with the code that the function needs: that of its module, or the one that `code` names."""
    root = Path(str(code)).resolve() if code is not None else None
    if root is not None and not root.is_dir():
        raise CliError(f"{function.__name__}: code: {root} is not a folder")
    if function.__module__ == "__main__":
        return root
    module = importlib.import_module(function.__module__)
    if inspect.unwrap(getattr(module, function.__name__, None)) is not function:  # type: ignore[arg-type]
        raise CliError(f"{function.__name__}: {module.__name__} has another function of this name")
    file = Path(inspect.getfile(module)).resolve()
    depth = module.__name__.count(".") + (1 if file.name == "__init__.py" else 0)
    home = file.parents[depth]
    if root is None and is_installed(file):
        raise CliError(f"{function.__name__}: {module.__name__} is installed: write a function that calls it")
    if root is None and home in (userconfig.base("HOME", "").resolve(), Path(home.anchor)):
        raise CliError(
            f"{function.__name__}: {file} lies in {home}, and its whole folder would go along: move it to a folder of "
            "its own"
        )
    if root is not None and root != home:
        raise CliError(f"{function.__name__}: code has to be {home}, from which {module.__name__} is imported")
    return home


def _copy(root: Path, folder: Path) -> None:
    """Copy what `everspot submit` packs of a folder."""
    ignored = ignored_in(root) or (lambda path: False)
    left_out = shutil.ignore_patterns(*LEFT_OUT)

    def skip(parent: str, names: list[str]) -> set[str]:
        inside = Path(parent).relative_to(root)
        paths = {name: (inside / name).as_posix() for name in names}
        by_file = {n for n, path in paths.items() if ignored(f"{path}/" if Path(parent, n).is_dir() else path)}
        return by_file | left_out(parent, names)

    try:
        shutil.copytree(root, folder, ignore=skip, symlinks=True)
    except (OSError, shutil.Error) as error:
        raise CliError(f"{root} cannot be copied: {error}") from None
