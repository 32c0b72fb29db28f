"""`everspot cluster down`: takes a cluster down, jobs and all, and checks that nothing is left that costs money."""

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import typer
from everspot_clouds.base import CloudError, RemainingResource, Site
from everspot_clouds.orphans import Orphan, find_orphans
from everspot_clouds.registry import find_cloud, provider
from everspot_clouds.stack_state import list_ids, list_outside
from everspot_core.cluster.manifest import Manifest
from everspot_core.counting import counted, first_few
from everspot_core.documents import format_duration
from everspot_store import NoCluster, StoreMissing

from everspot_cli.close_ledger import settle
from everspot_cli.commands.control import list_owned_jobs
from everspot_cli.commands.options import Json, current_session, parse_duration_option
from everspot_cli.errors import CliError, Exit
from everspot_cli.local_cloud_hints import with_local_cloud
from everspot_cli.requests import STORE_DELETION, build_request
from everspot_cli.session import Session
from everspot_cli.stacks import Stack
from everspot_cli.target import Target, choose_by_option, choose_without_stack

POLL = timedelta(seconds=2)
"""How often the store is asked whether jobs run, and the cloud what is left."""

RELEASE_TIMEOUT = timedelta(minutes=2)
"""Time for the scheduler to release launched instances, once no job runs. Then they are ended directly."""

DELETION_TIMEOUT = timedelta(minutes=5)
"""Time for what is ending to end, before and after the destroy."""

_SHOWN = 8
_GONE = (StoreMissing, NoCluster)
"""The errors that show that an earlier destroy has begun."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("down")(down)


def down(
    context: typer.Context,
    stack: Annotated[
        str | None,
        typer.Option("--stack", metavar="NAME", help="The cluster's Pulumi stack. Default: the selected one."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    timeout: Annotated[str, typer.Option("--timeout", help="Longest wait for jobs to checkpoint.")] = "15m",
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Continue after that wait even if jobs run, and delete buckets with jobs that have not ended.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Take the cluster down: drain it, release its instances, destroy its stack, and check for remaining resources.

    Nothing is destroyed before every job has checkpointed and every launched instance has ended. Instances that the
    scheduler does not release, and resources with the cluster's tag that are in no stack, are ended with your own
    credentials, unless they may belong to another cluster of its name. A stack that has more than the cluster is
    refused. Buckets stay if the stack's settings keep them. Otherwise unfinished jobs are named first, and --yes alone
    does not delete them.
    """
    session = current_session(context, json)
    limit = parse_duration_option(timeout, "--timeout")
    declared = _stack(session, stack)
    _refuse_others(declared)
    manifest = _manifest(session, declared)
    site, before = _look(manifest)
    cloud_view = _CloudView(session, manifest, site, list_ids(declared.state))
    confirmed = _confirm(session, declared, before, yes, force, cloud_view.orphans())
    note = STORE_DELETION if declared.deletes() else "everspot cluster down"
    drained = _drain(session, limit, force, note) if declared.outputs["controlUrl"] else None
    ended = _release(session, site, before)
    _still_drained(session, drained, force)
    removed = _remove_orphans(cloud_view)
    if any(operation.operation != "creating" for operation in declared.pending):
        _report(session, "An update or a destroy was interrupted: asking the cloud what it has done.")
        declared.clear_pending()  # pending operations of resources that are gone would block the destroy
    if drained is not None:  # else there is no store
        _settle(session)
    if drained is not None and declared.deletes() and not force:
        _refuse_late_jobs(session, confirmed)
    session.errors.print(f"Destroying {declared.label}.")
    declared.destroy(lambda line: session.errors.print(line, style="dim", soft_wrap=True))
    if declared.pending:
        declared.clear_pending()
    remaining = _check(cloud_view)
    retained = [resource.name for resource in remaining if resource.retained]
    if retained and drained is not None:
        _settle(session)  # records the ends of the scheduler's and the standing instances, which the destroy ended
    _refuse_remaining([resource for resource in remaining if not resource.retained])
    answer = {
        "cluster": manifest.cluster, "drained": drained or [], "ended_directly": ended, "orphans_removed": removed,
        "kept": retained, "left": [],
    }  # fmt: skip
    if session.json:
        session.answer(answer)
    else:
        stay = f" Kept by its settings: {', '.join(retained)}." if retained else ""
        session.console.print(f"{manifest.cluster} is down; nothing of it is left that runs.{stay}")


def _stack(session: Session, name: str | None) -> Stack:
    """Return the stack to destroy.

    Raises:
        CliError: if the cluster that other commands of this shell talk to is another one. A stack that is named by
            `--stack` is only compared with the other options.
    """
    if name and session.stack and name != session.stack:
        raise CliError(f"two stacks are named: {session.stack} and {name}", Exit.USAGE)
    name = name or session.stack
    choose_cluster = choose_by_option if name else choose_without_stack
    chosen = choose_cluster(session.store_option, session.cluster_option)
    declared = Stack.read(name)
    url = str(declared.outputs["controlUrl"])
    if chosen is not None and _without_query(chosen.url) != _without_query(url):
        raise CliError(
            f"{chosen.source} chooses {chosen.url}, and {declared.label} declares {url}",
            Exit.USAGE,
            hint=f"leave {chosen.source} out" if name else "name the stack to destroy: --stack NAME",
        )
    session.choose_target(Target(url, declared.label, chosen.profile if chosen is not None else None))
    return declared


def _refuse_others(declared: Stack) -> None:
    """Refuse a stack that has more than the cluster: a destroy would delete that too, and the guards of other clusters
    would not ask whether their jobs run."""
    cluster = str(declared.outputs["cluster"])
    others = list_outside(declared.state, cluster)
    if others:
        raise CliError(
            f"{declared.label} has more than {cluster}, and would be destroyed with it: {first_few(others, _SHOWN)}. "
            "Nothing was changed",
            hint="drain the cluster (`everspot cluster drain --wait`), then destroy it alone: `pulumi destroy "
            "--run-program --target URN --target-dependents`, with its URN of `pulumi stack --show-urns`",
        )


def _without_query(url: str) -> str:
    return url.partition("?")[0].rstrip("/")


def _manifest(session: Session, declared: Stack) -> Manifest:
    """Return the cluster's manifest. If its store is deleted already, the manifest is built from the stack's
    outputs."""
    outputs = declared.outputs
    try:
        if outputs["controlUrl"]:
            return session.manifest
    except _GONE:
        pass
    cloud = outputs.get("cloud") or find_cloud(outputs["controlUrl"]) or "unknown"
    urls = {"control_url": outputs["controlUrl"], "data_url": outputs.get("dataUrl") or outputs["controlUrl"]}
    session.errors.print("The cluster has no store, or its store is gone: nothing can be drained.")
    place = {"region": outputs.get("region") or "", "account": outputs.get("project") or ""}
    return Manifest(cluster=outputs["cluster"], cloud=cloud, **place, **urls)


def _look(manifest: Manifest) -> tuple[Site, list[RemainingResource]]:
    """Return the cluster's site and its resources. The cloud is asked before anything is changed, so that an
    unreachable cloud is noticed early."""
    try:
        site = provider(manifest.cloud).site(manifest)
        return site, site.remaining()
    except ImportError as error:
        raise CliError(
            f"the cloud's client is not installed: {error}", Exit.UNAVAILABLE, hint="pip install 'everspot[cli]'"
        ) from None
    except CloudError as error:
        raise CliError(str(error), Exit.UNAVAILABLE, hint=with_local_cloud(error.fix)) from None


@dataclass(frozen=True)
class _CloudView:
    """The cluster in its cloud.

    Attributes:
        session: The command's.
        manifest: Of the cluster.
        site: The cluster's resources.
        declared_ids: The ids of the resources that the stack has.
    """

    session: Session
    manifest: Manifest
    site: Site
    declared_ids: Collection[str]

    def list_own(self) -> list[RemainingResource]:
        """Return the remaining resources without those that may belong to another cluster of the same name."""
        return [r for r in _list_remaining(self.site) if not r.is_of_unknown_owner(self.declared_ids)]

    def orphans(self) -> list[Orphan]:
        """Return the resources that belong to no stack, with their cost."""
        refused: list[str] = []
        try:
            orphans = find_orphans(
                self.manifest, self.declared_ids, self.session.clock, site=self.site, refused=refused
            )
        except CloudError as error:
            raise CliError(str(error), Exit.UNAVAILABLE, hint=error.fix) from None
        for reason in refused:
            self.session.errors.print(reason, markup=False)
        return orphans


def _confirm(
    session: Session,
    declared: Stack,
    before: Sequence[RemainingResource],
    yes: bool,
    force: bool,
    orphans: Sequence[Orphan],
) -> list[str]:
    """Print what will be deleted, and ask. Losing jobs needs --force where nobody can be asked.

    Returns the unfinished jobs that may be deleted.
    """
    running = [item for item in before if item.kind == "instance" and not item.ending]
    words = (
        f"{declared.outputs['cluster']} ({declared.label}) has {counted(len(running), 'instance')}. "
        "Its jobs checkpoint, and everything that the stack declares is destroyed."
    )
    removed = [item.sentence for item in orphans if not item.by_hand]
    stays = [item.sentence for item in orphans if item.by_hand]
    if removed:
        words += f" What belongs to no stack is removed as well: {first_few(removed, _SHOWN)}."
    if stays:
        words += f" What belongs to no stack and may have data or another owner stays: {first_few(stays, _SHOWN)}."
    buckets = declared.deletes()
    jobs = _list_unfinished_jobs(session) if buckets else []
    if buckets:
        words += (
            f" Its settings keep no buckets (retainStore: false): {first_few(buckets, _SHOWN)} "
            "and with them all checkpoints, results, datasets and the bill are deleted."
        )
    if jobs:
        words += f" {counted(len(jobs), 'unfinished job')} would be lost: {first_few(jobs, _SHOWN)}."
    if yes and jobs and not force:
        hint = "let them end or cancel them, keep the buckets (retainStore: true and `pulumi up`), or give --force"
        raise CliError(f"{words} Nothing was changed", hint=hint)
    if yes:
        if buckets or orphans:
            _report(session, words)
        return jobs
    if session.json or not sys.stdin.isatty():
        raise CliError(f"{words} Nobody can be asked here whether to go on", Exit.USAGE, hint="give --yes")
    session.errors.print(words)
    if not typer.confirm("Go on?", err=True):
        raise CliError("nothing was changed")
    return jobs


def _refuse_late_jobs(session: Session, confirmed: Collection[str]) -> None:
    """Refuse to delete jobs that were submitted after the user agreed to lose the `confirmed` ones."""
    late = [job for job in _list_unfinished_jobs(session) if job not in confirmed]
    if late:
        raise CliError(
            f"{counted(len(late), 'unfinished job')} came meanwhile and would be lost: {first_few(late, _SHOWN)}. "
            "The stack was not destroyed",
            hint="`everspot cluster drain --undo` lets them run; --force deletes them",
        )


def _list_unfinished_jobs(session: Session) -> list[str]:
    """Return the jobs that have not ended, sorted. Empty if the store no longer exists."""
    try:
        ended = {name for name, doc in session.store.records.scan().items() if doc.value.state.final}
        return sorted(set(session.store.jobs.scan()) - ended)
    except _GONE:
        return []


def _drain(session: Session, limit: timedelta, force: bool, note: str) -> list[str] | None:
    """Have every job checkpoint, and wait until none has an instance. `note`: of the drain.

    Returns the jobs that had an instance, or None if the store no longer exists.
    """
    try:
        session.store.request_drain(build_request(session, note))
        had = list_owned_jobs(session)
        with session.progress(f"{counted(len(had), 'job')} checkpointing", shown=bool(had)):
            still = _until(session, limit, lambda: list_owned_jobs(session))
    except _GONE:
        return None
    names = first_few(still, _SHOWN)
    if still and not force:
        raise CliError(
            f"not drained within {format_duration(limit)}: {names} still run. Nothing was destroyed",
            hint="is the scheduler alive? `everspot doctor` checks; --force goes on, "
            "`everspot cluster drain --undo` goes back",
        )
    _report(
        session,
        f"These did not checkpoint: {names}." if still else f"Drained: {counted(len(had), 'job')} checkpointed.",
    )
    return had


def _settle(session: Session) -> None:
    """Write the ends and prices that the ledger lacks: after the destroy no scheduler does. A failure is only reported,
    since the report can say later what is missing."""
    failure = settle(session)
    if failure is not None:
        _report(session, f"The ledger may lack the latest entries: {failure}")


def _still_drained(session: Session, drained: Sequence[str] | None, force: bool) -> None:
    """Refuse to go on if somebody has undone the drain meanwhile. `drained` None: there was nothing to drain."""
    if drained is None or force:
        return
    busy = list_owned_jobs(session)
    if busy:
        raise CliError(f"{first_few(busy, _SHOWN)} run again: the drain was undone. Nothing was destroyed")


def _release(session: Session, site: Site, before: Sequence[RemainingResource]) -> list[str]:
    """Wait until the scheduler has released the instances that it launched, and end the rest.

    Returns the ids of the instances that were ended here.
    """

    def list_launched() -> list[RemainingResource]:
        return [instance for instance in _list_remaining(site) if instance.launched and not instance.ending]

    if not list_launched():
        return []
    with session.progress("the scheduler is releasing instances", shown=True):
        stay = _until(session, RELEASE_TIMEOUT, list_launched)
    if not stay:
        _report(session, "Released: no instance that the scheduler launched runs.")
        return []
    ids = [instance.name for instance in stay]
    _report(
        session,
        f"Not released within {format_duration(RELEASE_TIMEOUT)}: {first_few(ids, _SHOWN)}. Ending them directly.",
    )
    _end(site, ids)
    still = _until(session, DELETION_TIMEOUT, list_launched)
    if still:
        names = first_few([instance.name for instance in still], _SHOWN)
        raise CliError(f"{names} cannot be ended; nothing was destroyed", Exit.UNAVAILABLE)
    return ids


def _remove_orphans(cloud_view: _CloudView) -> list[str]:
    """Remove resources that belong to no stack, and wait until they are deleted. Before that the stack's network cannot
    be deleted. Returns their names.

    Free resources are removed last, since billed ones may depend on them. A free one that cannot be removed is only
    reported.
    """
    orphans = [orphan for orphan in cloud_view.orphans() if not orphan.by_hand]
    if not orphans:
        return []
    session, site = cloud_view.session, cloud_view.site
    costly = [orphan for orphan in orphans if orphan.resource.capacity or orphan.usd_per_hour != 0]
    free = [orphan for orphan in orphans if orphan not in costly]
    _report(
        session,
        f"Removing what belongs to no stack: {first_few([orphan.resource.name for orphan in orphans], _SHOWN)}.",
    )
    _remove(site, [orphan.resource for orphan in costly])
    names = {part.name for orphan in costly for part in (orphan.resource, *orphan.parts)}
    with session.progress("removing what belongs to no stack", shown=True):
        stay = _until(
            session, DELETION_TIMEOUT, lambda: [orphan for orphan in _list_remaining(site) if orphan.name in names]
        )
    if stay:
        stuck_names = {orphan.name for orphan in stay}
        raise CliError(
            f"{first_few(sorted(stuck_names), _SHOWN)} cannot be removed; the stack was not destroyed",
            Exit.UNAVAILABLE,
            problems=[
                {"field": f"{orphan.resource.kind} {orphan.resource.name}", "problem": orphan.command}
                for orphan in costly
                if orphan.resource.name in stuck_names
            ],
        )
    for orphan in free:
        try:
            _remove(site, [orphan.resource])
        except CliError as error:
            _report(
                session,
                f"{orphan.resource.kind} {orphan.resource.name} costs nothing and stays: {error}. {orphan.command}",
            )
    return [orphan.resource.name for orphan in orphans]


def _remove(site: Site, resources: Sequence[RemainingResource]) -> None:
    try:
        site.remove(resources)
    except CloudError as error:
        names = first_few([resource.name for resource in resources], _SHOWN)
        raise CliError(f"{names} cannot be removed: {error}", Exit.UNAVAILABLE, hint=error.fix) from None


def _check(cloud_view: _CloudView) -> list[RemainingResource]:
    """Return the cluster's own resources that remain after the destroy, once those being deleted are gone. Instances
    that still run are ended."""
    session, site = cloud_view.session, cloud_view.site

    def list_undeleted() -> list[RemainingResource]:
        return [resource for resource in cloud_view.list_own() if not resource.retained]

    ids = [item.name for item in list_undeleted() if item.kind == "instance" and not item.ending]
    if ids:
        _report(session, f"Left after the destroy: {first_few(ids, _SHOWN)}. Ending them directly.")
        _end(site, ids)
    with session.progress("checking that nothing is left", shown=True):
        _until(session, DELETION_TIMEOUT, list_undeleted)
    return cloud_view.list_own()


def _refuse_remaining(remaining: Sequence[RemainingResource]) -> None:
    if remaining:
        raise CliError(
            f"the stack is destroyed, and {counted(len(remaining), 'resource')} of the cluster "
            "that may cost money are left",
            hint="check each, and delete it with the cloud's own tools",
            problems=[
                {"field": f"{resource.kind} {resource.name}", "problem": resource.detail or "exists"}
                for resource in remaining
            ],
        )


def _list_remaining(site: Site) -> list[RemainingResource]:
    try:
        return site.remaining()
    except CloudError as error:
        raise CliError(str(error), Exit.UNAVAILABLE, hint=error.fix) from None


def _end(site: Site, ids: Sequence[str]) -> None:
    try:
        site.end(ids)
    except CloudError as error:
        raise CliError(f"{first_few(ids, _SHOWN)} cannot be ended: {error}", Exit.UNAVAILABLE, hint=error.fix) from None


def _until(session: Session, limit: timedelta, list_remaining: Callable[[], list[Any]]) -> list[Any]:
    """Wait until `list_remaining` returns nothing, or the limit is reached. Returns what it returned last."""
    began = session.clock.monotonic()
    while (remaining := list_remaining()) and session.clock.monotonic() - began < limit:
        session.clock.sleep(POLL)
    return remaining


def _report(session: Session, words: str) -> None:
    session.errors.print(words, soft_wrap=True)
