"""The cost of the store's requests in a month without jobs. `python -m bench idle` counts the requests."""

from fractions import Fraction

from everspot_core.estimate.requested import HOURS_A_MONTH

WRITES_AN_HOUR, READS_AN_HOUR = 242, 811
"""Requests of a scheduler without jobs and agents: writes and lists, and reads."""


def requests_usd(writes: Fraction, reads: Fraction) -> Fraction:
    """Return dollars for a month of these requests. `writes`, `reads`: the prices of 1,000 of each."""
    return (WRITES_AN_HOUR * writes + READS_AN_HOUR * reads) / 1000 * HOURS_A_MONTH
