"""How an instance is paid. Of the standard library alone: who reads an instance's metadata needs it before all else."""

from enum import StrEnum


class Market(StrEnum):
    """How an instance is paid."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
