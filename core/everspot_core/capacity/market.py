"""How an instance is paid, and how pools of capacity are named.

This module uses the standard library alone, because the agent needs it to read the instance's metadata."""

from enum import StrEnum
from typing import NamedTuple


class Market(StrEnum):
    """How an instance is paid."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"


class PoolKey(NamedTuple):
    """The name of a pool of capacity: clouds sell, price and refuse capacity by these three."""

    instance_type: str
    zone: str
    market: Market
