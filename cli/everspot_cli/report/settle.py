"""Bringing the ledger up to date for a report, by the scheduler's own reading of the cloud."""

from everspot_clouds.registry import provider
from everspot_store import StoreError

from everspot_cli.session import Session


def settle(session: Session) -> str | None:
    """Note what the scheduler has not noted yet, and what only a later reader can: the end of its own instance.

    Every note is written once, whoever comes first, so this is harmless beside a living scheduler. Returns why it
    could not be done, for the report's notes; None if the ledger is complete.
    """
    manifest = session.manifest
    cloud = provider(manifest.cloud)
    try:
        errors = cloud.errors()
        from everspot_scheduler.ledger import settle_ledger
    except ImportError as error:
        return f"{manifest.cloud} was not asked for the latest ends and prices: {error}"
    try:
        reader = cloud.reading(manifest, session.clock)
        if reader is None:
            return None
        try:
            settle_ledger(session.store, manifest, reader)
        finally:
            reader.close()
    except (*errors, StoreError) as error:
        return f"{manifest.cloud} could not be asked for the latest ends and prices: {error}"
    return None
