"""The jobs that run in an environment now, asked of its cluster's store where that can be reached."""

from collections import Counter

from everspot_core.capacity.launching import launched_ids
from everspot_core.capacity.market import Market
from everspot_core.cluster.deployment import control_url
from everspot_core.jobs.records import JobState
from everspot_store import Store, StoreError

from everspot_review.engine import Engine, EngineError
from everspot_review.jobs import RunningJobs

_BUSY = (JobState.ASSIGNED, JobState.RUNNING)


def running_jobs(engine: Engine, environment: str) -> RunningJobs | None:
    """Return the jobs on standing instances; jobs on instances that a scheduler has launched do not belong to a fleet.
    None if unknown: there is no cluster yet, its store cannot be reached, or the instance of a job is unknown."""
    try:
        url = control_url(engine.state(environment))
        return None if not url else _count_running(url)
    except (EngineError, StoreError, ValueError):
        return None


def _count_running(url: str) -> RunningJobs | None:
    store = Store.open(url, url)
    records, unreadable = store.records.scan_with_unreadable()
    owners = [document.value.owner for document in records.values() if document.value.state in _BUSY]
    launched = launched_ids(document.value for document in store.launching.scan().values())
    instances = store.instances.scan()
    standing = [owner for owner in owners if owner not in launched]
    if unreadable or any(owner not in instances for owner in standing):
        return None
    counted: Counter[Market] = Counter(instances[str(owner)].value.market for owner in standing)
    return RunningJobs(dict(counted))
