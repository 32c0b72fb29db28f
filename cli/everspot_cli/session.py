"""The context of a command: its cluster, its clock, and how it answers."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, NoReturn

from everspot_clouds.base import CloudError
from everspot_clouds.registry import find_cloud, provider

from everspot_cli import userconfig
from everspot_cli.errors import CliError, Exit
from everspot_cli.local_cloud_hints import with_local_cloud
from everspot_cli.target import Target, choose

if TYPE_CHECKING:
    from everspot_clouds.base import Provider
    from everspot_core.capacity.catalogue import Catalogue
    from everspot_core.capacity.price_table import PriceTable
    from everspot_core.cluster.manifest import Manifest
    from everspot_core.cluster.peers import Peer
    from everspot_store import Store, SystemClock
    from rich.console import RenderableType

    from everspot_cli.console import PlainConsole


REFRESH = timedelta(seconds=2)
DOCUMENT_CACHE = "everspot/documents.db"
"""File below the user's cache folder that keeps documents by ETag, so that they are read only once."""


@dataclass
class Session:
    """One run of the command.

    Attributes:
        json: answer with JSON on standard output, and nothing else there.
        silent_peers: peers that did not answer this command in time, which it does not ask again.
        owns_process: whether the process runs this command alone. The profile of its cluster then applies to the
            environment of the process: to its other calls of the cloud, and to the programs that it starts.
    """

    store_option: str | None = None
    cluster_option: str | None = None
    stack: str | None = None
    json: bool = False
    silent_peers: set[str] = field(default_factory=set)
    owns_process: bool = False

    @cached_property
    def console(self) -> "PlainConsole":
        """Standard output."""
        from everspot_cli.console import PlainConsole

        return PlainConsole()

    @cached_property
    def errors(self) -> "PlainConsole":
        """Standard error."""
        from everspot_cli.console import PlainConsole

        return PlainConsole(stderr=True)

    @cached_property
    def clock(self) -> "SystemClock":
        """The market's clock.

        Raises:
            CliError: if EVERSPOT_CLOCK cannot be read.
        """
        from everspot_store import SystemClock

        try:
            return SystemClock.from_environment()
        except ValueError as error:
            raise CliError(str(error), Exit.USAGE, hint="unset EVERSPOT_CLOCK") from None

    @cached_property
    def target(self) -> Target:
        """The location of the cluster, and what named it.

        Raises:
            CliError: if nothing names a cluster.
        """
        return self._with_profile(choose(self.store_option, self.cluster_option, self.stack))

    def choose_target(self, target: Target) -> None:
        """Talk to this cluster, whatever the options name."""
        self.target = self._with_profile(target)

    def _with_profile(self, target: Target) -> Target:
        """Return the target, once its profile is the environment's."""
        cloud = find_cloud(target.url)
        if self.owns_process and target.profile is not None and cloud is not None:
            provider(cloud).select_profile(target.profile, os.environ)
        return target

    @property
    def store_url(self) -> str:
        """The URL of the control bucket. Raises as `target`."""
        return self.target.url

    @property
    def has_cluster(self) -> bool:
        """Whether a cluster is chosen."""
        try:
            return bool(self.store_url)
        except CliError:
            return False

    @cached_property
    def store(self) -> "Store":
        """The cluster's store. Opening it says on standard error which cluster that is.

        Raises:
            CliError: if no cluster is chosen, or there are no credentials for it.
        """
        from everspot_store import Store

        self._refuse_accelerated_clock()
        url, own = self.store_url, credentials_for(self.store_url, self.target.profile)
        # No cache for a store in a folder: its files are read as fast as a cache of them.
        cache_file = None if url.startswith("file:") else userconfig.base("XDG_CACHE_HOME", ".cache") / DOCUMENT_CACHE
        store = Store.open(url, clock=self.clock, credentials=own, cache_file=cache_file)
        self._refuse_fast_clock(store)
        if not self.json:
            words = f"cluster {store.manifest().cluster}: {self.store_url} ({self.target.source})"
            self.errors.print(words, style="dim", soft_wrap=True)
        return store

    def _refuse_accelerated_clock(self) -> None:
        """Refuse the clock of a local cloud, which a shell may still have, at any other store: jobs there would look
        months old."""
        from everspot_store.cloud import is_local

        if self.clock.scale != 1 and not is_local(self.store_url):
            raise CliError(
                f"EVERSPOT_CLOCK makes time run {self.clock.scale:g} times as fast, and {self.store_url} is of "
                "no local cloud",
                Exit.USAGE,
                hint="unset EVERSPOT_CLOCK",
            )

    def _refuse_fast_clock(self, store: "Store") -> None:
        """Refuse a faster clock at a cluster whose agents people start on machines of their own. Their documents have
        real time, so that jobs there would look months old, too."""
        from everspot_clouds.registry import UnknownCloud, provider

        if self.clock.scale <= 1:
            return
        manifest = store.manifest()
        with suppress(UnknownCloud):  # `cloud` names it
            if not provider(manifest.cloud).by_hand:
                return
            raise CliError(
                f"EVERSPOT_CLOCK makes time run {self.clock.scale:g} times as fast, and the agents of the cluster "
                f"{manifest.cluster} have real time",
                Exit.USAGE,
                hint="unset EVERSPOT_CLOCK",
            )

    def peer_store(self, peer: "Peer") -> "Store":
        """Return the store of another cluster, with this user's own credentials.

        Raises:
            CliError: if the user has no credentials.
            StoreError: if it cannot be opened.
        """
        from everspot_store import Store

        own = credentials_for(peer.control_url, self.target.profile)
        return Store.open(peer.control_url, peer.data_url, clock=self.clock, credentials=own)

    @cached_property
    def manifest(self) -> "Manifest":
        """The cluster's own description."""
        return self.store.manifest()

    @cached_property
    def cloud(self) -> "Provider":
        """The adapter to the cluster's cloud.

        Raises:
            CliError: if this version has no adapter for it.
        """
        from everspot_clouds.registry import UnknownCloud, provider

        from everspot_cli.errors import CliError

        try:
            return provider(self.manifest.cloud)
        except UnknownCloud as error:
            raise CliError(str(error)) from None

    @cached_property
    def catalogue(self) -> "Catalogue":
        """Types and prices: those of the project around the command, else the newest that were read for the cluster,
        and the types that it declares.

        Raises:
            CliError: if a file of the project's prices cannot be read.
        """
        from everspot_clouds.price_files import BadPriceFile, load_catalogue

        from everspot_cli.errors import CliError

        try:
            return load_catalogue(now=self.now, cluster=self.price_tables).with_types(self.manifest.instance_types)
        except BadPriceFile as error:
            raise CliError(str(error)) from None

    @cached_property
    def billing_catalogue(self) -> "Catalogue":
        """Types and prices of what was spent: those of the cluster alone, as its scheduler has them. The folder and the
        machine of the command do not matter, so everybody gets the same figures."""
        from everspot_core.capacity.catalogue import builtin
        from everspot_core.capacity.price_table import priced

        return reduce(priced, self.price_tables, builtin()).with_types(self.manifest.instance_types)

    @property
    def price_tables(self) -> "list[PriceTable]":
        """The cluster's price tables, the oldest first."""
        from everspot_core.capacity.price_table import newest_last

        return newest_last(self.price_table, self.manifest.list_prices)

    @cached_property
    def price_table(self) -> "PriceTable | None":
        """The newest price table of `everspot cost prices refresh`. None if it does not exist or cannot be read."""
        from everspot_store import BadDocument

        try:
            return self.store.price_table()
        except BadDocument as error:
            self.errors.print(f"warning: {error}", style="yellow", soft_wrap=True)
            return None

    @property
    def now(self) -> datetime:
        """Market time."""
        return self.clock.now()

    @property
    def prices_now(self) -> datetime:
        """The time that dates price tables: market time where a local cloud answers, otherwise real time."""
        from everspot_clouds.price_files import is_redirected

        return self.clock.now() if is_redirected() else datetime.now(UTC)

    @cached_property
    def clock_skew(self) -> timedelta:
        """How far the store's clock is ahead of this machine's. Zero if the store refuses the request; the submission
        that follows shows why."""
        from everspot_store import StoreError

        try:
            return self.store.measure_skew()
        except StoreError:
            return timedelta(0)

    @property
    def submission_time(self) -> datetime:
        """Market time by the store's clock. Deadlines and budgets of jobs count from it, whatever this machine's clock
        says."""
        return self.now + self.clock_skew

    def refresh(self) -> None:
        """Read the cluster's description again, and its prices and clock when they are needed.

        Raises:
            StoreError: if the store does not answer.
        """
        for name in ("manifest", "catalogue", "billing_catalogue", "price_table", "clock_skew"):
            self.__dict__.pop(name, None)
        document = self.store.read_manifest()
        if document is not None:
            self.__dict__["manifest"] = document.value

    @contextmanager
    def progress(self, words: str, *, shown: bool) -> Iterator[None]:
        """Show a line of progress on standard error while the block runs. Not with `json`, and not outside a terminal,
        where rich leaves an empty line."""
        if self.json or not shown or not self.errors.is_terminal:
            yield
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.errors, transient=True) as progress:
            progress.add_task(words, total=None)
            yield

    def redraw(self, draw: "Callable[[], RenderableType]", lines: Callable[[], dict[str, str]]) -> None:
        """Draw again and again, until Ctrl-C. Outside a terminal, print a line for each thing that changes.

        `lines`: the line of each thing, by its name.
        """
        if not self.console.is_terminal:
            self._print_changes(lines)
        from rich.live import Live

        with Live(draw(), console=self.console, auto_refresh=False, transient=False) as live:
            while True:
                self.clock.sleep(REFRESH)
                live.update(draw(), refresh=True)

    def _print_changes(self, lines: Callable[[], dict[str, str]]) -> NoReturn:
        from everspot_cli.console import without_controls

        before: dict[str, str] = {}
        while True:
            current = lines()
            changed_lines = [words for name, words in current.items() if before.get(name) != words]
            changed_lines += [f"{name}: no longer listed" for name in before if name not in current]
            for words in changed_lines:
                print(without_controls(f"{self.now:%Y-%m-%dT%H:%M:%SZ} {words}"), file=sys.stdout, flush=True)  # noqa: T201 - the answer
            before = current
            self.clock.sleep(REFRESH)

    def answer(self, value: Any) -> None:
        """Print one JSON document, which names the cluster if one was asked."""
        print(json.dumps(self._with_cluster_name(value), indent=2, default=_plain), file=sys.stdout)  # noqa: T201 - the answer itself

    def answer_line(self, value: Any) -> None:
        """Print one JSON document on one line, for answers that consist of several."""
        line = json.dumps(self._with_cluster_name(value), default=_plain)
        print(line, file=sys.stdout, flush=True)  # noqa: T201 - the answer itself

    def scale_note(self) -> str:
        """Return a note for durations if market time and the machine's time differ."""
        return (
            ""
            if self.clock.scale == 1
            else f"Times and dollars are market time, {self.clock.scale:g} times as fast as real time."
        )

    def _with_cluster_name(self, value: Any) -> Any:
        """Return the answer with the cluster's name in it; in a list, in every row."""
        if isinstance(value, list):
            return [self._with_cluster_name(row) for row in value]
        if "store" not in self.__dict__ or not isinstance(value, dict) or "cluster" in value:
            return value
        return {"cluster": self.manifest.cluster, **value}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def run_in_parallel(*calls: Callable[[], Any]) -> list[Any]:
    """Return the results of several calls that run at the same time, in order. When all have ended, the first error is
    raised."""
    with ThreadPoolExecutor(len(calls), thread_name_prefix="everspot-read") as pool:
        running = [pool.submit(call) for call in calls]
    return [call.result() for call in running]


def credentials_for(url: str, profile: str | None) -> Callable[[], Any] | None:
    """Return a provider of credentials for `Store.open`, or None if the store finds them by itself.

    Raises:
        CliError: if there are no credentials, or the profile cannot be used.
    """
    cloud = find_cloud(url)
    if cloud is None:
        return None
    try:
        return provider(cloud).credentials(url, profile)
    except CloudError as error:
        raise CliError(str(error), Exit.UNAVAILABLE, hint=with_local_cloud(error.fix)) from None
