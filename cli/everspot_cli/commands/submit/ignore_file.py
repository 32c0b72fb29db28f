"""`.everspotignore` in the root of a job's code: the paths that are not packed, as patterns like git's."""

from collections.abc import Callable
from pathlib import Path

from everspot_cli.errors import CliError

NAME = ".everspotignore"


def ignored_in(folder: Path) -> Callable[[str], bool] | None:
    """Returns a function that says whether a path inside the folder is left out. None: there is no such file.

    As in git the last pattern that matches counts, `!` takes a path back in, and nothing below a folder that is left
    out can be taken back in. Files of this name in folders below are not looked at.

    Raises:
        CliError: if the file cannot be read, or a pattern is invalid.
    """
    path = folder / NAME
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    from pathspec import GitIgnoreSpec

    try:
        spec = GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise CliError(f"{path}: {error}") from None
    return lambda inside: bool(spec.match_file(inside))
