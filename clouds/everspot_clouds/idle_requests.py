"""What the store's requests cost in a month in which nothing runs. `python -m bench idle` counts them."""

from fractions import Fraction

from everspot_core.estimate.requested import HOURS_A_MONTH

WRITES_AN_HOUR, READS_AN_HOUR = 242, 811
"""Requests of a scheduler without jobs and agents: those that write or list, and those that read."""


def requests_usd(writes: Fraction, reads: Fraction) -> Fraction:
    """Return dollars for a month of these requests. `writes`, `reads`: the prices of 1,000 of each."""
    return (WRITES_AN_HOUR * writes + READS_AN_HOUR * reads) / 1000 * HOURS_A_MONTH
