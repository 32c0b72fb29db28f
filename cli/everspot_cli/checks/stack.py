"""Checks of the Pulumi stack that declares the cluster, and of what the cloud has beside it."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from everspot_clouds.base import CloudError
from everspot_clouds.orphans import Orphan, find_orphans
from everspot_clouds.registry import REVIEWABLE
from everspot_clouds.stack_state import declared_clusters, list_ids
from everspot_core.capacity.catalogue import Catalogue
from everspot_core.cluster.deployment import control_url, describe_pending, pending_operations, resolve_pending
from everspot_core.cluster.manifest import Manifest
from everspot_store import BadDocument

from everspot_cli.checks import Check, Verdict
from everspot_cli.errors import CliError
from everspot_cli.session import Session
from everspot_cli.stacks import export

_PENDING, _ORPHANS = "pending operations", "orphans"


def stack_state(session: Session, url: str | None) -> dict[str, Any] | None:
    """Return the engine's state of the cluster's stack; None if no stack of the cluster at `url` is at hand here.

    Raises:
        CliError: if the stack was named and cannot be read.
    """
    if session.stack is None and not _in_a_project():
        return None
    try:
        state = export(session.stack)
    except CliError:
        if session.stack is not None:
            raise
        return None
    declared = control_url(state)
    another = url is not None and declared.partition("?")[0] != url.partition("?")[0]
    return None if session.stack is None and another else state


def pending_check(session: Session, state: dict[str, Any]) -> Check:
    """Check that no update of the stack was interrupted."""
    sentence = describe_pending(pending_operations(state))
    if sentence:
        return Check("cluster", _PENDING, Verdict.FAIL, sentence, resolve_pending(session.stack))
    return Check("cluster", _PENDING, Verdict.OK, "the stack's last update came to its end")


def orphan_checks(
    session: Session, state: dict[str, Any] | None, manifest: Manifest | None, catalogue: Catalogue
) -> list[Check]:
    """Check that the cloud has nothing of the cluster that belongs to no stack: one check for each that it has."""
    if manifest is not None and manifest.cloud not in REVIEWABLE:
        return []  # instances are started by hand there
    declared_ids = list_ids(state) if state is not None else _read_declared(session)
    clusters = [manifest] if manifest is not None else declared_clusters(state or {})
    if declared_ids is None:
        fix = "run it in the project's folder with --stack NAME, or run `pulumi up` with this release once"
        return [Check("cluster", _ORPHANS, Verdict.SKIP, "what the stack declares is not known here", fix)]
    checks: list[Check] = []
    for cluster in clusters:
        try:
            refused: list[str] = []
            orphans = find_orphans(cluster, declared_ids, session.clock, catalogue=catalogue, refused=refused)
            checks += [Check("credentials", _ORPHANS, Verdict.SKIP, reason) for reason in refused]
            # `declared.json` names no other resources of the stack.
            orphans = [candidate for candidate in orphans if state is not None or candidate.resource.capacity]
        except (CloudError, ImportError) as error:
            checks.append(Check("credentials", _ORPHANS, Verdict.SKIP, str(error), getattr(error, "fix", "")))
        else:
            checks += [_check(orphan) for orphan in orphans]
            if not orphans:
                words = "the cloud has nothing with the cluster's tag that belongs to no stack"
                checks.append(Check("cluster", _ORPHANS, Verdict.OK, words))
    return checks


def _check(orphan: Orphan) -> Check:
    free = orphan.usd_per_hour == 0 and not orphan.parts
    verdict = Verdict.WARN if free or orphan.by_hand else Verdict.FAIL
    fix = orphan.command or "delete it with the cloud's tools"
    if orphan.resource.unmarked:
        fix = "is it another cluster's of this name? If it is not: delete it with the cloud's tools"
    elif orphan.by_hand:
        fix = f"{fix}; or keep it, and take the cluster's tag or label away"
    elif orphan.command:
        fix = f"{fix}; `everspot cluster down` removes it too"
    return Check("cluster", _ORPHANS, verdict, f"belongs to no stack: {orphan.sentence}", fix)


def _read_declared(session: Session) -> Collection[str] | None:
    """Return the fleets and groups that the last update declared in the store, or None if no update has declared
    any."""
    try:
        declared = session.store.declared_capacity()
    except (BadDocument, CliError):
        return None
    return None if declared is None else declared.capacity


def _in_a_project() -> bool:
    """Return whether this folder, or one above it, is a Pulumi project."""
    here = Path.cwd()
    return bool(os.environ.get("PULUMI_STACK")) or any(
        (folder / "Pulumi.yaml").is_file() for folder in (here, *here.parents)
    )
