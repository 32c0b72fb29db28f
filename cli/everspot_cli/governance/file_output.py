"""Writes tables and pages to files: whole, or not at all."""

import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from everspot_cli.errors import CliError

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
    """Write a file in one step, compressed if its name ends with `.gz`.

    Raises:
        CliError: if it cannot be written.
    """
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        raise CliError(f"{option}: {path} cannot be written: {error.strerror or error}") from None
