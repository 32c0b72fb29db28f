"""`.everspotignore` in the root of a job's code: what is not packed, written as for git."""

from collections.abc import Callable
from pathlib import Path

from everspot_cli.errors import CliError

NAME = ".everspotignore"


def ignored_in(folder: Path) -> Callable[[str], bool] | None:
    """Whether a path inside the folder is left out; None where there is no such file.

    As in git the last pattern that matches counts, `!` takes a path back in, and nothing below a folder that is left
    out can be taken back in. Files of this name in folders below are not looked at.

    Raises:
        CliError: if the file cannot be read, or a pattern is none.
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
