"""What stands between `pulumi destroy` and running jobs: the first resource to go, which does not go while any runs."""

import os
from collections.abc import Sequence

import pulumi
from everspot_core.problems import cut
from everspot_core.records import JobState
from everspot_store import Store, StoreError
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.settings import get_monitor

FORCE = "EVERSPOT_FORCE_DESTROY"
"""Set to 1, it lets a destroy end what runs."""

_BUSY = (JobState.ASSIGNED, JobState.RUNNING)
_NAMED_AT_MOST = 5


def guard(
    parent: pulumi.Resource, name: str, control_url: pulumi.Input[str], after: Sequence[pulumi.Resource]
) -> pulumi.Stash:
    """A resource that depends on all of a cluster and is deleted before any of it; while jobs run, it refuses.

    What asks is a hook in the program: so `pulumi destroy` of such a stack needs `--run-program`, and says so.
    """
    hooks = None
    if not isinstance(get_monitor(), MockMonitor):  # mocks know no hooks, and delete nothing
        hook = pulumi.ResourceHook(f"{name}-no-job-runs", refuse_while_jobs_run)
        hooks = pulumi.ResourceHookBinding(before_delete=[hook])
    options = pulumi.ResourceOptions(parent=parent, depends_on=list(after), hooks=hooks)
    return pulumi.Stash(name, options, input=control_url)


def refuse_while_jobs_run(args: pulumi.ResourceHookArgs) -> None:
    """The hook: asks the cluster's store, by the URL in the state.

    Raises:
        pulumi.RunError: if a job is running or assigned, or if the store does not say.
    """
    if os.environ.get(FORCE) == "1":
        return
    url = str((args.old_inputs or {}).get("input", ""))
    try:
        found = Store.open(url, url).records.scan()
    except StoreError as error:
        raise pulumi.RunError(
            f"whether jobs run could not be asked of {url}: {cut(str(error), 200)}. {FORCE}=1 destroys nevertheless"
        ) from None
    busy = sorted(key for key, record in found.items() if record.value.state in _BUSY)
    if busy:
        more = f" and {len(busy) - _NAMED_AT_MOST} more" if len(busy) > _NAMED_AT_MOST else ""
        raise pulumi.RunError(
            f"{len(busy)} job{'s' if len(busy) > 1 else ''} would be ended: {', '.join(busy[:_NAMED_AT_MOST])}{more}. "
            f"`everspot drain --wait` first, which has them checkpoint; {FORCE}=1 ends them"
        )
