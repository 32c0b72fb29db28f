"""Computes what a job has cost so far, for its tracker."""

import logging
from datetime import timedelta

from everspot_clouds.base import Identity
from everspot_clouds.price_files import load_catalogue
from everspot_clouds.registry import provider
from everspot_core.capacity.price_table import newest_last
from everspot_core.cluster.manifest import Manifest
from everspot_core.costs.attempts import attempts
from everspot_core.costs.job_budget import spent
from everspot_core.costs.prices import Basis, PriceBook
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.tracking import Spending
from everspot_store import Store

_HOUR = timedelta(hours=1)
_log = logging.getLogger(__name__)


def read_spending(
    store: Store, manifest: Manifest, identity: Identity, submission: JobSubmission, epoch: int
) -> Spending | None:
    """Return the cost of a job so far and the price of its instance; None if they cannot be read, which does not
    prevent the job's start."""
    try:
        return _read_spending(store, manifest, identity, submission, epoch)
    except Exception:  # no error may prevent the job's start
        _log.warning("job %s: its cost so far is not known", submission.job_id, exc_info=True)
        return None


def _read_spending(
    store: Store, manifest: Manifest, identity: Identity, submission: JobSubmission, epoch: int
) -> Spending:
    now = store.clock.now()
    tables = newest_last(store.price_table(), manifest.list_prices)
    catalogue = load_catalogue(now=now, cluster=tables).with_types(manifest.instance_types)
    events = store.events(submission.job_id)
    tenures = attempts(events)
    ids = {tenure.instance_id for tenure in tenures if tenure.instance_id}
    launches = {name: document.value for name, document in store.launches.read(sorted(ids)).items()}
    ends = {name: document.value for name, document in store.ends.read(sorted(ids)).items()}
    own_pool = (identity.instance_type, identity.zone, identity.market)
    pools = {(launch.instance_type, launch.zone, launch.market) for launch in launches.values()}
    pools |= {tenure.pool for tenure in tenures if tenure.pool is not None} | {own_pool}
    book = PriceBook(store.prices(pools), catalogue)
    use = spent(
        events, submitted_at=submission.submitted_at, now=now, launches=launches, ends=ends, prices=book,
        catalogue=catalogue, rules=provider(manifest.cloud).billing,
    )  # fmt: skip
    present = tenures[-1] if tenures and tenures[-1].epoch == epoch else None
    is_shared = submission.spec.resources.shared
    share = float(present.share) if present is not None else None if is_shared else 1.0
    pool = (present.pool if present is not None else None) or own_pool
    prices = book.segments(*pool, now, now + _HOUR)
    kind = catalogue.types.get(pool[0])
    gpus = present.gpus if present is not None and present.gpus is not None else kind.gpus if kind else 0
    is_priced = all(
        segment.basis is not Basis.NONE
        for tenure in tenures
        if tenure.pool is not None
        for segment in book.segments(*tenure.pool, tenure.start, tenure.end or now)
    )
    return Spending(
        dollars=use.dollars if is_priced else None,
        gpu_hours=use.gpu_hours if share is not None else None,
        usd_per_hour=float(prices[-1].usd_per_hour) * share if prices and share is not None else None,
        gpus=gpus,
        at=now,
    )
