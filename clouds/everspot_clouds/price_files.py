"""The price tables of a project: one dated file for each region, committed and reviewed like code.

They are in `prices/` beside the project's Pulumi.yaml, and are written by `everspot cost prices refresh --region R`.
They take precedence over a cluster's own table, over the tables that a preview has read because there was no file
(`price_lookup`), and over the catalogue that comes with Everspot.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import lru_cache, reduce
from pathlib import Path

from everspot_core.capacity.catalogue import Catalogue, builtin
from everspot_core.capacity.price_table import PriceTable, priced
from everspot_store import SystemClock

FOLDER = "prices"
"""The folder of a project's price tables."""

PROJECT_FILE = "Pulumi.yaml"
"""The file that marks the folder of a project."""

CACHED_FOR = timedelta(days=7)
"""Age up to which a table that a preview cached is used. List prices change a few times a year."""

REDIRECTIONS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_PRICING", "AWS_ENDPOINT_URL_EC2", "EVERSPOT_GCP_ENDPOINT")
"""Variables that name another endpoint than the cloud's, such as a local cloud's."""

_CACHE = Path("everspot") / "prices"


class BadPriceFile(ValueError):
    """A file of prices that cannot be read. Its message names the file, the problem, and the command that writes the
    file again."""


def is_redirected() -> bool:
    """Return whether another endpoint answers in the cloud's place."""
    return any(os.environ.get(name) for name in REDIRECTIONS)


def price_clock() -> SystemClock:
    """Return the clock that dates price tables: a local cloud's where it answers, otherwise real time. A shell may
    still have the EVERSPOT_CLOCK of a local cloud that has ended, which would date a cloud's prices into the future.

    Raises:
        ValueError: if a local cloud answers, and EVERSPOT_CLOCK cannot be read.
    """
    return SystemClock.from_environment() if is_redirected() else SystemClock()


def find_project(start: Path | None = None) -> Path | None:
    """Return the nearest folder, from `start` upwards, with a Pulumi.yaml, or None. `start`: None for the working
    directory."""
    first = (start or Path.cwd()).absolute()
    return next((folder for folder in (first, *first.parents) if (folder / PROJECT_FILE).is_file()), None)


def file_name(cloud: str, region: str) -> str:
    """Return the name of a region's file."""
    return f"{cloud}-{region}.json"


def write_table(folder: Path, table: PriceTable) -> Path:
    """Write a region's table into a folder of tables, in a form whose changes are readable, and return its path.

    Raises:
        OSError: if it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, draft = folder / file_name(table.cloud, table.region), folder / f".{table.cloud}-{table.region}.{os.getpid()}"
    draft.write_text(render_table(table), encoding="utf-8")
    draft.replace(path)  # a reader beside this sees a whole file
    return path


def render_table(table: PriceTable) -> str:
    """Return the text of a region's file."""
    return table.model_dump_json(indent=1, exclude_none=True) + "\n"


def read_tables(folder: Path) -> list[PriceTable]:
    """Return the tables of a folder; none if it does not exist.

    Raises:
        BadPriceFile: if one of them cannot be read.
    """
    paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    return [_read(path) for path in paths]


def _read(path: Path) -> PriceTable:
    try:
        stat = path.stat()
        return _parsed(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise BadPriceFile(f"{path} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=64)
def _parsed(path: Path, modified_ns: int, size: int) -> PriceTable:
    """Return a file's table. `modified_ns` and `size` are the key of the cache: a file that changes is read again."""
    try:
        table = PriceTable.read(path.read_bytes())
    except ValueError as error:
        first = str(error).splitlines()[0]
        raise BadPriceFile(f"{path} is no price table ({first}): {refresh_command('REGION')} writes one") from None
    if path.name != file_name(table.cloud, table.region):
        raise BadPriceFile(
            f"{path} has the prices of {table.region} on {table.cloud}: its name has to be "
            f"{file_name(table.cloud, table.region)}"
        )
    return table


def refresh_command(region: str) -> str:
    """Return the command that writes a region's file."""
    return f"`everspot cost prices refresh --region {region}`"


def cache_folder() -> Path:
    """Return the folder of the tables that previews have asked for: below the user's cache (XDG base directory
    specification, which ignores relative paths)."""
    stated = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if stated.is_absolute():
        return stated / _CACHE
    try:
        return Path.home() / ".cache" / _CACHE
    except RuntimeError:  # no HOME, and no such user, as in a container with a user id of its own: no cache
        return Path("/nonexistent") / _CACHE


def read_cached(now: datetime) -> list[PriceTable]:
    """Return the tables that previews have read recently. A file that cannot be read is left out, because nobody
    wrote it by hand."""
    folder, tables = cache_folder(), []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            table = _read(path)
        except BadPriceFile:
            continue
        if table.age(now) < CACHED_FOR:
            tables.append(table)
    return tables


def project_table(cloud: str, region: str) -> PriceTable | None:
    """Return the table of a region in the project around the working directory; None if the project has none.

    Raises:
        BadPriceFile: if a file of the project's prices cannot be read.
    """
    return next((table for table in project_tables() if (table.cloud, table.region) == (cloud, region)), None)


def other_prices(cloud: str, region: str, now: datetime | None = None) -> PriceTable | None:
    """Return the table whose `other_usd` counts in a region: the project's, else that of an earlier preview; None if
    neither has such prices. `now`: as in `load_catalogue`.

    Raises:
        BadPriceFile: if one of the project's files cannot be read.
    """
    moment = price_clock().now() if now is None else now
    tables = [
        table
        for table in (*read_cached(moment), *project_tables())
        if (table.cloud, table.region) == (cloud, region) and table.other_usd
    ]
    return tables[-1] if tables else None


def project_tables(start: Path | None = None) -> list[PriceTable]:
    """Return the tables of the project around a folder. `start`: None for the project of `project_prices`, else that
    around the working directory.

    Raises:
        BadPriceFile: if one of them cannot be read.
    """
    if start is None and (tables := _project.get()) is not None:
        return list(tables)
    project = find_project(start)
    return [] if project is None else read_tables(project / FOLDER)


_project: ContextVar[Sequence[PriceTable] | None] = ContextVar("project's price tables", default=None)


@contextmanager
def project_prices(tables: Sequence[PriceTable]) -> Iterator[None]:
    """Let these tables be the project's while the block runs, for a project around which the command does not run."""
    token = _project.set(tuple(tables))
    try:
        yield
    finally:
        _project.reset(token)


def project_catalogue() -> Catalogue:
    """Return the types and prices that come with Everspot, overridden by the project's files alone.

    Raises:
        BadPriceFile: if one of the project's files cannot be read.
    """
    return reduce(priced, project_tables(), builtin())


def load_catalogue(*, now: datetime | None = None, cluster: Iterable[PriceTable] = ()) -> Catalogue:
    """Return the known types and prices: the catalogue that comes with Everspot, overridden by the tables of previews,
    by those of a cluster, and by the project's files.

    Args:
        now: The time against which the tables of earlier previews are too old; None for this moment.
        cluster: A cluster's tables, the newest last.

    Raises:
        BadPriceFile: if one of the project's files cannot be read.
    """
    moment = price_clock().now() if now is None else now
    return reduce(priced, (*read_cached(moment), *cluster, *project_tables()), builtin())
