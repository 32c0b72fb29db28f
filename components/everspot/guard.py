"""Refuses `pulumi destroy` and the replacement of a fleet while jobs run, and other updates that do harm.

A hook of the engine asks the cluster's store. Hooks run in the program, so `pulumi destroy` of such a stack needs
`--run-program`, and says so. The hook is registered even if the guard is off: the state may name it from an earlier
`up`, and the engine refuses to delete a resource whose hook it does not know.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from everspot_core.capacity.launching import launched_ids
from everspot_core.counting import counted, first_few
from everspot_core.jobs.records import InstanceState, JobState, Market
from everspot_core.validation.problems import cut
from everspot_store import Store, StoreError
from pulumi.output import Unknown
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.settings import get_monitor

FORCE = "EVERSPOT_FORCE_DESTROY"
"""Environment variable: set to 1, it lets a destroy or a replacement end running jobs."""

_BUSY = (JobState.ASSIGNED, JobState.RUNNING)
_MAX_NAMES = 5

DELETION_EFFECT = (
    "Their instances are shut down without a notice: agents get SIGTERM and 80 s to checkpoint, which EC2 does not "
    "promise; the jobs go on elsewhere, from there or from their last checkpoint"
)
"""Amazon EC2 User Guide, "How instance termination works": EC2 attempts a clean shutdown of the system, and then cuts
the power. The agent's unit stops within `TimeoutStopSec`, and checkpoints as for an interruption
(docs/reference/agent.md)."""

REPLACEMENT_EFFECT = "replaced or deleted, it ends its instances"

MOVE_EFFECT = (
    "Pods are deleted with their service accounts and their scheduler: no checkpoint is certain, and a finalizer keeps "
    "the old namespace until somebody removes it"
)
"""Effect of a deleted namespace on jobs (Kubernetes, "Namespaces"; "Finalizers")."""


def guard(
    parent: pulumi.Resource, name: str, control_url: pulumi.Input[str], after: Sequence[pulumi.Resource], *, on: bool
) -> None:
    """If `on`, declare a resource that depends on the whole cluster and is therefore deleted first; its deletion is
    refused while jobs run."""
    hooks = None
    if _has_hooks():
        hook = pulumi.ResourceHook(f"{name}-no-job-runs", lambda args: refuse_while_jobs_run(args) if on else None)
        hooks = pulumi.ResourceHookBinding(before_delete=[hook])
    if on:
        options = pulumi.ResourceOptions(parent=parent, depends_on=list(after), hooks=hooks)
        pulumi.Stash(name, options, input=control_url)


def fleet_guard(
    parent: pulumi.Resource,
    name: str,
    market: Market,
    manifest: pulumi.Input[str],
    *,
    on: bool,
    effect: str = DELETION_EFFECT,
    size: str | None = None,
) -> pulumi.ResourceOptions:
    """Return the options of a fleet. With them a preview that replaces or deletes the fleet says what that does to
    running jobs, and `pulumi up` refuses it while they run. `manifest`: of the fleet's agents, which names the store;
    `effect`: the effect on the jobs; `size`: the fleet's property whose decrease also ends instances, if it has one.

    The old fleet is deleted before the new one is made, so that a refusal changes nothing and no quota has to hold
    both.
    """
    if not _has_hooks():
        return pulumi.ResourceOptions()
    hooks = _FleetHooks(parent, name, market, manifest, on=on, effect=effect, size=size)
    options = pulumi.ResourceHookOptions(on_dry_run=True)
    before_delete = pulumi.ResourceHook(f"{name}-no-job-runs", hooks.before_delete, options)
    smaller = None if size is None else pulumi.ResourceHook(f"{name}-not-smaller", hooks.before_update, options)
    if not on:
        return pulumi.ResourceOptions()
    binding = pulumi.ResourceHookBinding(before_delete=[before_delete], before_update=[smaller] if smaller else None)
    return pulumi.ResourceOptions(hooks=binding, delete_before_replace=True)


JOB_ROLE = "jobRole"
"""The setting by which jobs have a role of their own. Without it, the role is deleted."""
ROLE_CHANGE = "jobRole: false deletes the role of running jobs"
ROLE_EFFECT = "They reach the store no longer, write no checkpoint, and go on elsewhere from an older one"
"""What runs with a deleted role may do nothing any more: AWS's IAM User Guide, "Delete roles or instance profiles";
Google Cloud's IAM documentation, "Create and manage custom roles" (the bindings of a deleted role are inactive)."""

Settings = Mapping[str, Any]


def list_changed(old: Settings, new: Settings) -> list[str]:
    """Return the names of old settings that have another value, or none. What is not known yet may be the same, and
    what is switched on takes nothing away."""
    return [
        key
        for key, value in old.items()
        if new.get(key) != value and value is not False and not isinstance(new.get(key), Unknown)
    ]


@dataclass(frozen=True, slots=True)
class PlaceChange:
    """The change of the place in which instances run.

    Attributes:
        moved: returns the names of the settings by which the place has changed, of the old settings and the new ones.
        change: what another value of such a setting does, for people.
        effect: the effect on jobs, for people.
    """

    moved: Callable[[Settings, Settings], list[str]] = list_changed
    change: str = "ends all instances"
    effect: str = MOVE_EFFECT


def place_guard(
    parent: pulumi.Resource,
    name: str,
    control_url: pulumi.Input[str],
    place: Mapping[str, Any],
    *,
    on: bool,
    move: PlaceChange | None = None,
) -> list[pulumi.Resource]:
    """If `on`, return a resource whose update is refused while jobs run. `place`: settings whose change replaces
    everything that instances run in. All of that has to depend on the resource, so that a refusal changes nothing."""
    if not on:
        return []
    hooks = None
    if _has_hooks():
        on_preview, kind = pulumi.ResourceHookOptions(on_dry_run=True), move or PlaceChange()
        hook = pulumi.ResourceHook(
            f"{name}-no-job-runs", lambda update: _check_move(parent, name, update, kind), on_preview
        )
        hooks = pulumi.ResourceHookBinding(before_update=[hook])
    options = pulumi.ResourceOptions(parent=parent, hooks=hooks)
    return [pulumi.Stash(name, options, input={"store": control_url, **place})]


def _check_move(parent: pulumi.Resource, name: str, args: pulumi.ResourceHookArgs, move: PlaceChange) -> None:
    """Report, or refuse, a change of place. It asks the store whose URL is in the state."""
    old, new = (dict((inputs or {}).get("input") or {}) for inputs in (args.old_inputs, args.new_inputs))
    url = str(old.pop("store", ""))
    moved = move.moved(old, new)
    if not moved:
        return
    if pulumi.runtime.is_dry_run():
        change, effect = f"another {' and '.join(moved)} {move.change}", move.effect
        if moved == [JOB_ROLE]:
            change, effect = ROLE_CHANGE, ROLE_EFFECT
        message = describe_change(url, None, refused=True, change=change, effect=effect)
        pulumi.log.warn(f"{name}: {message}", parent)
    else:
        _refuse(url)


def update_guard(name: str, refuse: Callable[[pulumi.ResourceHookArgs], None]) -> pulumi.ResourceOptions:
    """Return the options of a resource whose harmful updates are refused, in the preview too. `refuse`: raises for
    such an update."""
    if not _has_hooks():
        return pulumi.ResourceOptions()
    hook = pulumi.ResourceHook(f"{name}-no-harm", refuse, pulumi.ResourceHookOptions(on_dry_run=True))
    return pulumi.ResourceOptions(hooks=pulumi.ResourceHookBinding(before_update=[hook]))


class _FleetHooks:
    """The hooks of one fleet. They report, or refuse, changes that end instances with jobs."""

    def __init__(
        self,
        parent: pulumi.Resource,
        name: str,
        market: Market,
        manifest: pulumi.Input[str],
        *,
        on: bool,
        effect: str,
        size: str | None,
    ) -> None:
        self._parent, self._name, self._market = parent, name, market
        self._on, self._effect, self._size = on, effect, size
        # Known by the time that a hook runs, unless the store itself is not there yet.
        self._stores: list[str] = []
        pulumi.Output.from_input(manifest).apply(lambda text: self._stores.append(str(json.loads(text)["control_url"])))

    def before_delete(self, _: pulumi.ResourceHookArgs) -> None:
        self._look(REPLACEMENT_EFFECT)

    def before_update(self, args: pulumi.ResourceHookArgs) -> None:
        old, new = ((inputs or {}).get(self._size or "") for inputs in (args.old_inputs, args.new_inputs))
        if isinstance(old, int | float) and isinstance(new, int | float) and new < old:
            self._look(f"made smaller, from {old:g} to {new:g}, it ends instances of the cloud's choice")

    def _look(self, change: str) -> None:
        url = self._stores[-1] if self._stores else ""
        if pulumi.runtime.is_dry_run():
            message = describe_change(url, self._market, refused=self._on, change=change, effect=self._effect)
            pulumi.log.warn(f"{self._name}: {message}", self._parent)
        elif self._on:
            _refuse(url, self._market)


def refuse_while_jobs_run(args: pulumi.ResourceHookArgs) -> None:
    """Refuse to delete a cluster while its jobs run: the hook of a whole cluster. It asks the store whose URL is in the
    state.

    Raises:
        pulumi.RunError: if a job is running or assigned, or if the store does not say.
    """
    _refuse(str((args.old_inputs or {}).get("input", "")))


def describe_change(
    url: str,
    market: Market | None,
    *,
    refused: bool,
    change: str = REPLACEMENT_EFFECT,
    effect: str = DELETION_EFFECT,
) -> str:
    """Return a sentence on the effect of a change on present jobs: of a market's fleet, or of all instances."""
    try:
        busy = busy_jobs(url, market)
        remaining = launched_instances(url) if market is None and not busy else []
    except StoreError as error:
        state = f"whether jobs run on its instances could not be read from the store ({cut(str(error), 200)})"
    else:
        if not busy and not remaining:
            return f"{change}; no job runs on them now"
        idle = f"no job runs on them now, and these are not ended yet: {_names(remaining)}"
        state = f"{_count(busy)} on its instances now: {_names(busy)}" if busy else idle
    unless = f". Not done while they run: `everspot cluster drain --wait` first, or {FORCE}=1" if refused else ""
    return f"{change}; {state}. {effect}{unless}"


def busy_jobs(url: str, market: Market | None = None) -> list[str]:
    """Return the jobs that are running or assigned, on a market's instances if one is given.

    Raises:
        StoreError: if the store does not answer, or if a job's document cannot be read.
    """
    if not url:
        raise StoreError("its address is not known yet")
    store = Store.open(url, url)
    records, unreadable = store.records.scan_with_unreadable()
    if unreadable:
        raise StoreError(
            f"{counted(len(unreadable), 'record')} of jobs cannot be read, so that they may run"
            f" ({_names(unreadable)}): corrupt, or written by a newer release: run that release"
        )
    owners = {key: record.value.owner for key, record in records.items() if record.value.state in _BUSY}
    if market is None or not owners:
        return sorted(owners)
    instances, launched = store.instances.scan(), _launched(store)
    # An instance that the scheduler has launched belongs to no fleet, and outlives it.
    owners = {job: owner for job, owner in owners.items() if owner not in launched}
    # The market of an instance without a readable record is unknown, so it may be this one.
    return sorted(
        job for job, owner in owners.items() if owner not in instances or instances[owner].value.market is market
    )


def launched_instances(url: str) -> list[str]:
    """Return instances that the scheduler has launched and that still run. No stack has them as resources, so no
    destroy ends them.

    Raises:
        StoreError: if the store does not say.
    """
    store = Store.open(url, url)
    launched = _launched(store)
    if not launched:
        return []
    ended = set(store.ends.scan())
    reported = store.instances.scan()
    running = {name for name, report in reported.items() if report.value.state is not InstanceState.GONE}
    booting = store.launches.scan().keys() - reported.keys()
    return sorted((launched & (running | booting)) - ended)


def _launched(store: Store) -> set[str]:
    return launched_ids(intent.value for intent in store.launching.scan().values())


def _refuse(url: str, market: Market | None = None) -> None:
    if os.environ.get(FORCE) == "1":
        return
    try:
        busy = busy_jobs(url, market)
        remaining = launched_instances(url) if market is None and not busy else []
    except StoreError as error:
        raise pulumi.RunError(
            f"whether jobs run could not be asked of {url}: {cut(str(error), 200)}. {FORCE}=1 goes on nevertheless"
        ) from None
    if busy:
        raise pulumi.RunError(
            f"{counted(len(busy), 'job')} would be ended: {_names(busy)}. "
            f"`everspot cluster drain --wait` first, which has them checkpoint; {FORCE}=1 ends them"
        )
    if remaining:
        raise pulumi.RunError(
            f"{counted(len(remaining), 'instance')} that the scheduler launched would be left running: "
            f"{_names(remaining)}. "
            f"`everspot cluster drain --wait` first, which has them released, or `everspot cluster down`; "
            f"{FORCE}=1 leaves them"
        )


def _count(jobs: Sequence[str]) -> str:
    return f"{counted(len(jobs), 'job')} {'run' if len(jobs) > 1 else 'runs'}"


def _names(jobs: Sequence[str]) -> str:
    return first_few(jobs, _MAX_NAMES)


def _has_hooks() -> bool:
    return not isinstance(get_monitor(), MockMonitor)  # mocks know no hooks, and delete nothing
