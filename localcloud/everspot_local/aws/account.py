"""Stands in for the one AWS account and region that the local cloud is: what moto's classes here reach the market by.

There is one at a time in a process, as moto's own state is one per process.
"""

from dataclasses import dataclass, field

from everspot_local.aws.ec2.throttle import Buckets
from everspot_local.aws.imds.service import MetadataServices
from everspot_local.aws.registry_state import RegistryState
from everspot_local.machines.lifecycle import Machines
from everspot_local.market.market import LocalMarket
from everspot_local.market.market_log import Journal
from everspot_local.options import Options

ACCOUNT = "123456789012"


@dataclass
class Account:
    """The account's settings, its market and machines, and AWS's own records of its API calls.

    Attributes:
        endpoint: URL of every service, set once there is a server.
        calls: the journal of API calls.
        registry: of images.
    """

    options: Options
    market: LocalMarket
    machines: Machines
    metadata: MetadataServices
    calls: Journal
    endpoint: str = ""
    buckets: Buckets = field(init=False)
    registry: RegistryState = field(default_factory=RegistryState)

    def __post_init__(self) -> None:
        self.buckets = Buckets(self.market.clock)

    @property
    def region(self) -> str:
        """Name of its only region."""
        return self.market.region

    def reset(self) -> None:
        """Empty the account of machines, credentials and booked calls. moto's own state and the market are reset
        elsewhere."""
        self.machines.reset()
        self.metadata.reset()
        self.calls.restart()
        self.buckets = Buckets(self.market.clock)
        self.registry = RegistryState()


_current: Account | None = None


def current() -> Account:
    """Return the account that moto's classes act in.

    Raises:
        RuntimeError: if no local cloud is running in this process.
    """
    if _current is None:
        raise RuntimeError("no local cloud is running in this process")
    return _current


def check_free() -> None:
    """Make sure that no account is entered.

    Raises:
        RuntimeError: if one is.
    """
    if _current is not None:
        raise RuntimeError("there is one local cloud in this process already: moto's state is the process's")


def enter(account: Account | None) -> None:
    """Make an account the current one; None leaves it."""
    global _current
    _current = account
