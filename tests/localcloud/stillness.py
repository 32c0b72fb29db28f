"""Stops market time while a test reads; for the tests of both local clouds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from everspot_local.cloud import LocalCloud


@contextmanager
def standing_still(cloud: LocalCloud, patch: pytest.MonkeyPatch) -> Iterator[Callable[[float], None]]:
    """Market time stands still within: a busy machine may take longer to look than the market takes to move on. What it
    gives moves it on by so many seconds."""
    clock = cloud.market.clock
    exact = clock._exact
    frozen_at = exact()
    added = [0.0]
    patch.setattr(clock, "_exact", lambda: frozen_at + added[0])
    yield lambda seconds: added.append(added.pop() + seconds)
    lost = exact() - frozen_at - added[0]
    patch.setattr(clock, "_exact", lambda: exact() - lost)
