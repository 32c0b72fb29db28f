"""The jobs that run in an environment now, asked of its cluster's store where that can be reached."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from everspot_core.launching import launched_ids
from everspot_core.market import Market
from everspot_core.records import JobState
from everspot_store import Store, StoreError

from everspot_review.engine import Engine, EngineError
from everspot_review.jobs import RunningJobs

CONTROL = "controlUrl"
"""The stack's output with the URL of its control bucket."""

_BUSY = (JobState.ASSIGNED, JobState.RUNNING)


def running_jobs(engine: Engine, environment: str) -> RunningJobs | None:
    """Jobs on standing instances; those that a scheduler has launched are no fleet's. None if nobody can say: there is
    no cluster yet, its store cannot be reached, or whose instance a job is on is not known."""
    try:
        url = _control_url(engine.state(environment))
        return None if not url else _asked(url)
    except (EngineError, StoreError, ValueError):
        return None


def _asked(url: str) -> RunningJobs | None:
    store = Store.open(url, url)
    records, unreadable = store.records.census()
    owners = [found.value.owner for found in records.values() if found.value.state in _BUSY]
    launched = launched_ids(found.value for found in store.launching.scan().values())
    instances = store.instances.scan()
    standing = [owner for owner in owners if owner not in launched]
    if unreadable or any(owner not in instances for owner in standing):
        return None
    counted: Counter[Market] = Counter(instances[str(owner)].value.market for owner in standing)
    return RunningJobs(dict(counted))


def _control_url(state: Mapping[str, Any]) -> str:
    """The output of the stack itself; a secret one is not opened."""
    for resource in (state.get("deployment") or {}).get("resources") or ():
        if resource.get("type") == "pulumi:pulumi:Stack":
            found = (resource.get("outputs") or {}).get(CONTROL)
            return found if isinstance(found, str) else ""
    return ""
