"""The change record that `everspot review apply` stores in a control bucket, with the identity of an environment."""

from collections.abc import Mapping

import pytest
from everspot_core.cluster.applied_change import AppliedChange
from everspot_store import Store

DIGEST = "d" * 64


def open_store(env: Mapping[str, str], control: str) -> Store:
    """A cluster's store, with the identity of an environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        return Store.open(control, control)


def keep_change(env: Mapping[str, str], control: str) -> None:
    """Keep a change, as the job `apply` does.

    Raises:
        StoreError: if it cannot be written.
    """
    store = open_store(env, control)
    change = AppliedChange(at=store.clock.now(), environment="dev", revision="c" * 40, digest=DIGEST)
    store.changes.add(change)


def stored_change_digests(env: Mapping[str, str], control: str) -> list[str]:
    """The digests of the changes that are kept."""
    return [change.digest for change in open_store(env, control).changes.all()]
