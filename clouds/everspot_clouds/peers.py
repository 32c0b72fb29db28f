"""Access of a cluster's scheduler to the store of a peer, which may belong to another cloud.

The peer's cloud knows how its stores are entered, and the scheduler's own cloud proves who asks. No key is kept
anywhere: the credentials last an hour at most, and are renewed before they expire.
"""

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from everspot_clouds.base import CloudError, Trouble
from everspot_clouds.registry import find_cloud, provider

AHEAD = timedelta(minutes=10)
"""The time before their end at which credentials are replaced: longer than the five minutes from which on obstore asks
for new ones, so that it never gets the old ones again."""


def peer_credentials(cloud: str, region: str, url: str, identity: str, audience: str) -> Callable[[], Any] | None:
    """Return credentials for a peer's store, in the form that `Store.open` takes; None if the store finds them by
    itself.

    Nothing is requested until the store is used. If that fails, the error has the reason: see `Renewed`.

    Args:
        cloud: of the cluster that asks. `region`: its region.
        url: of the peer's control bucket.
        identity: who the scheduler becomes there; empty if it stays who it is.
        audience: to whom its own cloud makes the proof out; empty for the usual one.

    Raises:
        UnknownCloud: if this version does not know the cluster's cloud.
    """
    peer_cloud = find_cloud(url)
    if peer_cloud is None or not identity:
        return None
    got = provider(peer_cloud).peer_credentials(url, identity, audience, provider(cloud).proof(region))
    return None if got is None else Renewed(got)


class Renewed:
    """Credentials that end, each kept until shortly before its end. Thread-safe: all clients of a store share it."""

    def __init__(
        self, get: Callable[[], Mapping[str, Any]], now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """`get`: asks for new ones, whose `expires_at` is in real time, as the clouds' clocks are."""
        self._get, self._now = get, now
        self._lock = threading.Lock()
        self._current: Mapping[str, Any] | None = None

    def __call__(self) -> dict[str, Any]:
        """Return the credentials for now.

        Raises:
            CloudError: if they cannot be had, and a person has to act.
            ConnectionError: if they cannot be had now. The store then says that it is unavailable, and not that it
                refuses (everspot_store/cloud_errors.py).
        """
        with self._lock:
            if self._current is None or self._current["expires_at"] - self._now() < AHEAD:
                try:
                    self._current = self._get()
                except CloudError as error:
                    if error.trouble in (Trouble.TRANSIENT, Trouble.THROTTLED):
                        raise ConnectionError(str(error)) from None
                    raise
            return dict(self._current)
