"""Reads the files of a cloud's bill: CSV or JSON lines, plain or compressed by gzip, and Parquet. Whatever is wrong is
told by line or row, and nothing is compared then."""

import csv
import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from everspot_core.governance.bill_rows import BillRow, UnknownTable, find_table, read_row
from everspot_core.governance.invoicing import BillTable, Invoicing
from everspot_core.validation.problems import Problem

from everspot_cli.errors import CliError, Exit, list_problems, need

_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_LONGEST_LINE = 1 << 22  # characters; a bill's lines have some thousands
_WRONG_AT_MOST = 200  # problems, after which a file is not read on


MAGIC = b"PAR1"
_ROWS = 4096  # at a time, so that memory does not grow with the file


class BrokenParquet(ValueError):
    """The file is no Parquet, or a part of it is broken."""


class BillFile:
    """One file. `table`: known once `rows` has begun. `repeated`: rows of instances that an earlier file had in every
    cell, and that are therefore left out. Equal rows of one file all count: a table without the ids of its lines has
    such rows.

    Args:
        digests: how often the earlier files had each row; this file adds its own rows.
    """

    def __init__(self, path: Path, invoicing: Invoicing, cost: str, digests: Counter[int]) -> None:
        self._path, self._invoicing, self._cost, self._digests = path, invoicing, cost, digests
        self._own_digests: Counter[int] = Counter()
        self.table: BillTable | None = None
        self.repeated = 0

    def rows(self) -> Iterator[BillRow]:
        """Yield the rows of the file.

        Raises:
            CliError: if it cannot be read, or anything in it is not as it has to be.
        """
        wrong: list[Problem] = []
        with self._open() as file:
            for place, raw in self._records(file):
                row = self._row(place, raw, wrong)
                if row is not None:
                    yield row
                if len(wrong) >= _WRONG_AT_MOST:
                    break
        self._digests |= self._own_digests
        if wrong:
            raise CliError(f"{self._path} has faults, so nothing was compared", problems=list_problems(wrong))
        if self.table is None:
            raise CliError(f"{self._path} has no rows")

    def _row(self, place: str, raw: Mapping[Any, Any], wrong: list[Problem]) -> BillRow | None:
        if self.table is None:
            # Of JSON lines and Parquet. The former leave out what has no value, which most rows' resources have not.
            self.table = self._identify_table(
                [*dict.fromkeys([*raw, *(table.resource for table in self._invoicing.tables)])]
            )
        if None in raw or None in raw.values():
            wrong.append(Problem(place, "has more or fewer cells than the header"))
            return None
        row = read_row(raw, self.table, self._invoicing, self._cost)
        if not isinstance(row, BillRow):
            wrong.extend(Problem(f"{place}, {problem.path}", problem.reason) for problem in row)
            return None
        if row.instance is not None:
            digest = hash(tuple(map(str, raw.values())))
            self._own_digests[digest] += 1
            if self._own_digests[digest] <= self._digests[digest]:
                self.repeated += 1
                return None
        return row

    def _identify_table(self, columns: Sequence[str]) -> BillTable:
        try:
            table = find_table(columns, self._invoicing)
        except UnknownTable as error:
            raise CliError(
                f"{self._path} {error}", hint="docs/guide/governance.md says which exports are read"
            ) from None
        if self._cost not in table.costs:
            has = ", ".join(table.costs)
            raise CliError(f"--cost: {table.name} has no {self._cost} cost; it has {has}", Exit.USAGE)
        if table.costs[self._cost] not in columns:
            raise CliError(f"{self._path} lacks the column {table.costs[self._cost]} of {table.name}")
        return table

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        try:
            with self._path.open("rb") as file:
                yield file
        except FileNotFoundError:
            raise CliError(f"there is no file {self._path}", Exit.NOT_FOUND) from None
        except (OSError, EOFError, zlib.error, BrokenParquet) as error:
            raise CliError(f"{self._path} cannot be read: {error}") from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise CliError(f"{self._path} is neither CSV nor JSON lines: {error}") from None

    def _records(self, file: BinaryIO) -> Iterator[tuple[str, Mapping[Any, Any]]]:
        """Yield the rows, each with its place in the file, which errors name."""
        magic = file.read(4)
        file.seek(0)
        if magic == MAGIC:
            for number, raw in parquet_rows(self._path):
                yield f"row {number}", raw
            return
        if magic == _ZIP:
            raise CliError(f"{self._path} is a ZIP archive", hint="unpack it first")
        with self._decompress(file, magic) as data, io.TextIOWrapper(data, encoding="utf-8-sig", newline="") as text:
            for number, raw in self._texts(text):
                yield f"line {number}", raw

    def _decompress(self, file: BinaryIO, magic: bytes) -> BinaryIO:
        return gzip.open(file) if magic[:2] == _GZIP else file  # type: ignore[return-value]

    def _texts(self, text: io.TextIOBase) -> Iterator[tuple[int, Mapping[Any, Any]]]:
        lines = self._lines(text)
        first = next((line for line in lines if line.strip()), "")
        if first.lstrip().startswith("{"):
            yield from self._objects(chain([first], lines))
            return
        reader = csv.DictReader(chain([first], lines), strict=True)
        names = list(reader.fieldnames or [])
        if names:
            self.table = self._identify_table(names)
        for raw in reader:
            yield reader.line_num, raw

    def _objects(self, lines: Iterator[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                # Numbers stay as they are written: not a digit of a dollar is lost.
                raw = json.loads(line, parse_float=str, parse_int=str, parse_constant=str)
            except (ValueError, RecursionError) as error:
                raise CliError(f"{self._path}: line {number} is not JSON: {error}") from None
            if not isinstance(raw, dict):
                raise CliError(f"{self._path}: line {number} is not a JSON object")
            yield number, {name: "" if value is None else value for name, value in raw.items()}

    def _lines(self, text: io.TextIOBase) -> Iterator[str]:
        while line := text.readline(_LONGEST_LINE + 1):
            if len(line) > _LONGEST_LINE:
                raise CliError(f"{self._path} has a line of more than {_LONGEST_LINE:,} characters")
            yield line


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
