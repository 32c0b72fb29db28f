"""Writes tables and pages to files: whole, or not at all."""

import csv
import gzip
import io
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from everspot_cli.errors import CliError

_STREAMS = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
"""Folders of devices and of open files, such as `/dev/stdout`, which may be a file to which others write, too."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_csv(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> str:
    """Return the rows as CSV with a header, lines ended by CRLF as RFC 4180 has it."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(columns), lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def for_spreadsheets(text: str) -> str:
    """Return a name that is safe in a cell: spreadsheets take what begins with certain signs for a formula, so that
    gets an apostrophe in front (OWASP, "CSV Injection")."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def write_file(path: Path, text: str, option: str) -> None:
    """Write a file in one step, compressed if its name ends with `.gz`. A link stays, and its target is written. What
    is no regular file, such as `/dev/stdout`, is opened and written.

    Raises:
        CliError: if it cannot be written.
    """
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    try:
        if path.absolute().parent in _STREAMS or (path.exists() and not path.is_file()):
            with path.open("ab") as stream:
                stream.write(data)
        else:
            replace_file(path, data)
    except OSError as error:
        raise CliError(f"{option}: {path} cannot be written: {error.strerror or error}") from None


def replace_file(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write a regular file in one step. A link stays, and its target is replaced.

    Args:
        path: The file.
        data: Its new content.
        mode: Its permissions, from which the process's umask is taken.

    Raises:
        OSError: if it cannot be written. Nothing is left behind.
    """
    target = path.resolve()
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        part.touch(mode=mode)
        part.write_bytes(data)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
