"""Reads prices from a cloud's price lists in a preview, if the project has no file of the region yet.

Each region is read once per process, with the credentials of the environment and within a time limit, and cached in the
user's cache folder for a day. The preview prints that it did so, because reviews only see files of the project.
"""

import contextlib
import threading
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from everspot_core.capacity.price_table import PriceTable
from everspot_core.clock import Clock

from everspot_clouds.base import CloudError
from everspot_clouds.naming import cloud_of_region
from everspot_clouds.price_files import (
    cache_folder,
    is_redirected,
    price_clock,
    project_table,
    read_cached,
    write_table,
)
from everspot_clouds.registry import provider

ASKED_AGAIN = timedelta(days=1)
"""Age at which a table of the cache is read again."""

AT_MOST = timedelta(seconds=90)
"""Time for all pages of an answer; each page has its own limit."""


@dataclass(frozen=True)
class LookUp:
    """The answer of a region's price lists: a table, or the reason for its absence."""

    table: PriceTable | None = None
    refusal: str = ""


_answers: dict[tuple[str, str], tuple[frozenset[str], LookUp]] = {}
_lock = threading.Lock()


class _TookTooLong(Exception):
    """The price lists have more pages than there is time for."""


def look_up(region: str, types: Collection[str], clock: Clock | None = None) -> LookUp:
    """Return the prices of some types in a region from the cloud's price lists.

    A region with a file in the project is not read, since `everspot cost prices refresh` updates the file. `clock`:
    None for this machine's.

    Raises:
        BadPriceFile: if a file of the project's prices cannot be read.
    """
    cloud = cloud_of_region(region)
    if cloud is None or project_table(cloud, region) is not None:
        return LookUp()
    time = clock or price_clock()
    with _lock:  # several components of one program ask at the same time
        queried, answer = _answers.get((cloud, region), (frozenset[str](), LookUp()))
        if not queried.issuperset(types):
            queried |= frozenset(types)
            answer = _cached(cloud, region, queried, time) or _query(cloud, region, queried, time)
            _answers[cloud, region] = queried, answer
        return answer


def _cached(cloud: str, region: str, types: Collection[str], clock: Clock) -> LookUp | None:
    """Return the table of an earlier preview, if it is young and answered for all of the types."""
    for table in read_cached(clock.now()):
        answered = {row.instance_type for row in table.prices} | table.unpriced.keys()
        if (table.cloud, table.region) == (cloud, region) and answered.issuperset(types):
            return LookUp(table) if table.age(clock.now()) < ASKED_AGAIN else None
    return None


def _query(cloud: str, region: str, types: Collection[str], clock: Clock) -> LookUp:
    end = clock.monotonic() + AT_MOST

    def page() -> None:
        if clock.monotonic() > end:
            raise _TookTooLong

    try:
        table = provider(cloud).price_table(region, types, clock.now(), page)
    except _TookTooLong:
        return LookUp(refusal=f"the price lists took longer than {AT_MOST.total_seconds():g} s")
    except CloudError as error:
        return LookUp(refusal=str(error))
    except ImportError as error:  # the cloud's client is not installed here
        return LookUp(refusal=f"{error.name} is not installed")
    if not is_redirected():  # whose answers hold for this process alone
        _keep(table)
    return LookUp(table)


def _keep(table: PriceTable) -> None:
    with contextlib.suppress(OSError):  # then the next preview asks again
        write_table(cache_folder(), table)
