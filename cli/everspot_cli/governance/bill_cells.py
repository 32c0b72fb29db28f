"""Reads the rows of a Parquet file of a bill, cell by cell as a table in text would have them."""

from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from everspot_cli.errors import need

MAGIC = b"PAR1"
_ROWS = 4096  # at a time, so that memory does not grow with the file


class BrokenParquet(ValueError):
    """The file is no Parquet, or a part of it is broken."""


def parquet_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the rows of a file, counted from 1, with all of its columns: text, and a mapping or a list where a cell has
    one.

    Raises:
        CliError: if the packages of the extra `parquet` are not installed.
        BrokenParquet: if it is broken.
    """
    need("everspot cost reconcile of Parquet", "parquet")
    import pyarrow  # only where the extra is installed
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield number, {name: _cell(value) for name, value in row.items()}
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BrokenParquet(str(error).strip().partition("\n")[0]) from None


def _cell(value: Any) -> Any:
    """Return numbers and times as text without losing a digit, and pairs of keys and values as a mapping."""
    if value is None:
        return ""
    if isinstance(value, date):  # every datetime is one
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list):
        return dict(value) if value and isinstance(value[0], tuple) else value
    return value if isinstance(value, dict) else str(value)
