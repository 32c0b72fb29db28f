"""Stands in for the one AWS account and region that the local cloud is: what moto's classes here reach their market by.

There is one at a time in a process, as moto's own state is one per process.
"""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everspot_core.catalogue import Catalogue

from everspot_local.aws.ec2.throttle import Buckets
from everspot_local.market.books import Journal, MarketLog
from everspot_local.market.clock import MarketClock
from everspot_local.market.pools import MarketPool, Pools
from everspot_local.market.quotas import Quotas
from everspot_local.market.timeline import Timeline

if TYPE_CHECKING:
    from everspot_local.aws.imds.service import MetadataServices
    from everspot_local.machines.lifecycle import Lifecycle
    from everspot_local.machines.processes import Machines

ACCOUNT = "123456789012"


@dataclass(frozen=True)
class Delays:
    """How long the cloud takes for what it does by itself. Market time."""

    submit: timedelta = timedelta(seconds=2)  # a fleet request until its first launches
    pending: timedelta = timedelta(seconds=8)  # launch until `running`
    boot: timedelta = timedelta(seconds=20)  # launch until the image's boot command starts
    shutdown: timedelta = timedelta(seconds=30)  # SIGTERM until SIGKILL, when a user terminates an instance
    replace: timedelta = timedelta(seconds=15)  # the end of a fleet's instance until its replacement is asked for
    retry: timedelta = timedelta(seconds=30)  # a fleet that lacks capacity, until it asks again
    heal: timedelta = timedelta(seconds=30)  # the end of a group's instance until its replacement
    notice: timedelta = timedelta(seconds=120)  # interruption notice until the instance is taken
    walk: timedelta = timedelta(seconds=600)  # from one price to the next
    visible: timedelta = timedelta(seconds=3)  # launch until every description tells of the instance


@dataclass(frozen=True)
class Options:
    """Settings of a local cloud.

    `state_dir`: logs and instances' folders. `boot_command`: what an instance runs; None runs none at all.
    `data_dir`: folder of datasets that instances read. `iam_enforce`: refuse what a role's policies do not allow.
    `lenient`: accept what AWS would refuse, throttle or tell late. `quotas`: values by quota code, where they differ.
    """

    state_dir: Path
    region: str = "us-east-1"
    scale: float = 12.0
    seed: int = 7
    boot_command: tuple[str, ...] | None = (sys.executable, "-m", "everspot_train.agent.main")
    data_dir: Path | None = None
    iam_enforce: bool = False
    lenient: bool = False
    quotas: dict[str, float] = field(default_factory=dict)
    delays: Delays = field(default_factory=Delays)


class World:
    """The market with its clock and books, and the hooks of the parts around it."""

    machines: "Machines"
    metadata: "MetadataServices"
    lifecycle: "Lifecycle"
    endpoint: str

    def __init__(self, options: Options, catalogue: Catalogue, zone_ids: dict[str, str]) -> None:
        self.options = options
        self.delays = options.delays
        self.region = options.region
        self.clock = MarketClock(options.scale)
        self.lock = threading.RLock()
        self.timeline = Timeline(self.clock, self.lock)
        self.log = MarketLog(options.state_dir / "market.jsonl")
        self.calls = Journal(options.state_dir / "calls.jsonl")
        self.listeners: list[Callable[[Any, str], None]] = []
        self._catalogue = catalogue
        self._zone_ids = zone_ids
        self.pools = self._new_pools()
        self.quotas = Quotas(options.quotas)
        self.buckets = Buckets(self.clock)

    def refill(self) -> None:
        """The market as it was at its beginning, with empty books."""
        self.log.restart()
        self.calls.restart()
        self.pools = self._new_pools()
        self.quotas = Quotas(self.options.quotas)
        self.buckets = Buckets(self.clock)

    def use_catalogue(self, catalogue: Catalogue) -> None:
        """More types, declared in a market script. Pools that exist stay as they are."""
        self._catalogue = catalogue
        self.pools.catalogue = catalogue

    def _new_pools(self) -> Pools:
        return Pools(
            self._catalogue, self.region, self._zone_ids, self.options.seed, self.clock.epoch, self._record_price
        )

    def _record_price(self, pool: MarketPool, usd: float, at: datetime) -> None:
        self.log.price(pool.instance_type, pool.zone, usd, at)


_current: World | None = None


def current() -> World:
    """The world that moto's classes act in.

    Raises:
        RuntimeError: if no local cloud is running in this process.
    """
    if _current is None:
        raise RuntimeError("no local cloud is running in this process")
    return _current


def check_free() -> None:
    """Make sure that no world is entered.

    Raises:
        RuntimeError: if one is.
    """
    if _current is not None:
        raise RuntimeError("there is one local cloud in this process already: moto's state is the process's")


def enter(world: World | None) -> None:
    """Make a world the current one, or leave it with None."""
    global _current
    _current = world
