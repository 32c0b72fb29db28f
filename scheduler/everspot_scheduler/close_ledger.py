"""Brings the ledger up to date once, without a scheduler, after the last one is gone."""

from everspot_clouds.base import Cloud
from everspot_core.cluster.manifest import Manifest
from everspot_store import Store

from everspot_scheduler.cloud_facts import Facts
from everspot_scheduler.elastic.intents import Intents
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.missed_instances import note_unseen


def settle_ledger(store: Store, manifest: Manifest, cloud: Cloud) -> Ledger:
    """Bring the ledger up to date once.

    The last scheduler cannot write the end of its own instance.

    Raises:
        StoreError, or the cloud's errors.
    """
    ledger, facts = Ledger(store, manifest), Facts()
    ledger.load()
    facts.describe(cloud.instances(), store.clock.monotonic(), cloud.ends())
    ledger.note_instances(facts)
    intents = Intents(store)
    intents.look()
    note_unseen(ledger, store.clock, facts, store.instances.scan(), intents.launched)
    ledger.note_prices(cloud)
    return ledger
