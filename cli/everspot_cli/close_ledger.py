"""Settles the ledger on a person's behalf where no scheduler does, and says when it may lack entries."""

from everspot_store import StoreError

from everspot_cli.rows import SCHEDULER_SILENT
from everspot_cli.session import Session, run_in_parallel

SETTLES = "everspot cost report --settle"
"""The command that settles the ledger."""


def settle(session: Session) -> str | None:
    """Bring the ledger up to date from the cloud, by the same code as the scheduler.

    This adds what the scheduler has not written yet, and the end of the scheduler's own instance, which the scheduler
    cannot write. Every entry is written once, by the first writer, so this is safe while a scheduler runs.

    Returns:
        Why it failed, as a note for people. None: the ledger is complete.
    """
    manifest = session.manifest
    cloud = session.cloud
    try:
        errors: tuple[type[Exception], ...] = (*cloud.errors(), StoreError)
        from everspot_scheduler.close_ledger import settle_ledger
    except ImportError as error:
        return f"{manifest.cloud} was not asked for the latest ends and prices: {error}"
    try:
        reader = cloud.reading(manifest, session.clock, session.price_tables)
        if reader is None:
            return None
        try:
            settle_ledger(session.store, manifest, reader)
        finally:
            reader.close()
    except errors as error:
        return f"{manifest.cloud} could not be asked for the latest ends and prices: {error}"
    return None


def missing_entries(session: Session) -> str | None:
    """Return a note if the ledger may lack entries: no scheduler is alive, and an instance has no end.

    The scheduler settles in every tick. After the last scheduler only its own instance, and what outlived that, is
    open.
    """
    store = session.store
    beats, launches, ends = run_in_parallel(store.schedulers.scan, store.launches.scan, store.ends.scan)
    open_instances = set(launches) - set(ends)
    last = max((doc.value.updated_at for doc in beats.values()), default=None)
    if not open_instances or (last is not None and session.clock.to_real(session.now - last) <= SCHEDULER_SILENT):
        return None
    count = len(open_instances)
    unsettled = f"{count} instance{'s' * (count != 1)} without an end"
    return f"no scheduler is alive, and the ledger has {unsettled}: `{SETTLES}` asks the cloud for ends and prices"
