"""The difference between the store's clock and this machine's."""

import secrets
from datetime import datetime, timedelta

from everspot_core.clock import Clock

from everspot_store.bucket import Bucket

PRECISION = timedelta(seconds=1)
"""Stores give the time of a write in whole seconds (S3: ListObjectsV2, `LastModified`)."""
TOLERANCE = timedelta(seconds=5)
"""A difference up to this counts as zero: requests take time, and synchronized clocks differ a little."""


def measure_skew(bucket: Bucket, clock: Clock) -> timedelta:
    """Return how far the store's clock is ahead of `clock`; negative if it is behind.

    Writes a small object, reads the time that the store gave it, and deletes it. Returns zero for a difference up to
    `TOLERANCE`, and if market time runs at another speed than the store's time.

    Raises:
        StoreError: if the object cannot be written, listed or deleted.
    """
    if not _runs_like_the_store(clock):
        return timedelta(0)
    key = f"clocks/{secrets.token_hex(8)}"
    before = clock.now()
    bucket.put(key, b"")
    try:
        return skew_of_write(bucket, clock, key, before)
    finally:
        bucket.delete(key)


def skew_of_write(bucket: Bucket, clock: Clock, key: str, before: datetime) -> timedelta:
    """Return the skew (see `measure_skew`), measured with an object that was written just now.

    Args:
        bucket: the object's.
        clock: this machine's.
        key: of the object.
        before: the time by `clock` right before the write.

    Raises:
        StoreError: if it cannot be listed.
    """
    if not _runs_like_the_store(clock):
        return timedelta(0)
    after = clock.now()
    written = next((entry.modified for entry in bucket.list(f"{key.rpartition('/')[0]}/") if entry.key == key), None)
    if written is None:
        return timedelta(0)
    if written > after + TOLERANCE:
        return written - after
    if written + PRECISION < before - TOLERANCE:
        return written + PRECISION - before
    return timedelta(0)


def _runs_like_the_store(clock: Clock) -> bool:
    """Return whether market time runs at the speed of the store's time."""
    return clock.to_real(timedelta(seconds=1)) == timedelta(seconds=1)
