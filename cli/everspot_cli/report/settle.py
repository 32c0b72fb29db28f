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
    try:
        from botocore.exceptions import BotoCoreError, ClientError
        from everspot_scheduler.ledger import settle_ledger
    except ImportError as error:
        return f"EC2 was not asked for the latest ends and prices: {error}"
    try:
        cloud = provider(manifest.cloud).reading(manifest, session.clock)
        if cloud is None:
            return None
        try:
            settle_ledger(session.store, manifest, cloud)
        finally:
            cloud.close()
    except (BotoCoreError, ClientError, StoreError) as error:
        return f"EC2 could not be asked for the latest ends and prices: {error}"
    return None
