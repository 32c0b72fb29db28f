"""Finds drift since an environment's last update: by the engine's refresh, and by a second look beyond the state.

Neither changes anything. A refresh asks each resource of the stack for its declared properties. The second look asks
for things that are attached to the resources and in no state: rules of security groups and firewalls, policies and
roles, added by hand.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from everspot_clouds.base import CloudError
from everspot_clouds.base.drift import AddedByHand, KeptResource
from everspot_clouds.orphans import Orphan, find_orphans
from everspot_clouds.registry import REVIEWABLE, added_by_hand
from everspot_clouds.stack_state import declared_clusters, list_ids
from everspot_core.cluster.deployment import PendingOperation, pending_operations
from everspot_core.cluster.manifest import Manifest
from everspot_store import SystemClock

from everspot_review.engine import PREVIEW_TIMEOUT, Engine, EngineError
from everspot_review.event_log import resource_name
from everspot_review.refreshing import refusals
from everspot_review.report import PropertyChange
from everspot_review.values import at, confidential, readable_sides

DRIFTED = 7
"""The exit code of a refresh with --expect-no-changes that finds changes (pulumi/pkg, cmd/pulumi/cmd/exit_codes.go)."""


@dataclass(frozen=True)
class DriftedResource:
    """A resource that differs from its state.

    Attributes:
        urn: Its URN.
        type: Its type token.
        name: Its name.
        is_gone: Whether it no longer exists.
        changes: Its changed properties, from the state's value to the cloud's.
    """

    urn: str
    type: str
    name: str
    is_gone: bool
    changes: tuple[PropertyChange, ...] = ()


@dataclass(frozen=True)
class Drift:
    """The findings of the refresh and of the check for undeclared resources in an environment.

    Attributes:
        environment: Its name.
        resources: The findings of the refresh.
        added: Things that are attached to the stack's resources and that no resource declares.
        skipped_checks: Why parts of the check for undeclared resources could not be made, in sentences.
        refused: Why the refresh could not be made, so that nothing is known.
        pending: Operations of an update that was interrupted.
        orphans: Resources with the cluster's tag or label that are in no stack.
    """

    environment: str
    resources: tuple[DriftedResource, ...] = ()
    added: tuple[AddedByHand, ...] = ()
    skipped_checks: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    pending: tuple[PendingOperation, ...] = ()
    orphans: tuple[Orphan, ...] = ()

    @property
    def has_drifted(self) -> bool:
        """Whether something is not as it was left."""
        return bool(self.resources or self.added or self.pending or self.orphans)

    def document(self) -> dict[str, object]:
        """For programs. `drifted` is null where nothing is known."""
        return {
            "environment": self.environment,
            "drifted": None if self.refused else self.has_drifted,
            "resources": [
                {"urn": r.urn, "type": r.type, "name": r.name, "gone": r.is_gone,
                 "changes": [change.model_dump() for change in r.changes]}
                for r in self.resources
            ],
            "added": [{"urn": a.urn, "kind": a.kind, "what": a.detail, "key": a.key} for a in self.added],
            "pending": [{"urn": p.urn, "type": p.type, "operation": p.operation} for p in self.pending],
            "orphans": [
                {"kind": o.resource.kind, "name": o.resource.name, "detail": o.resource.detail,
                 "instances": [part.name for part in o.parts], "usd_per_hour": o.usd_per_hour, "command": o.command}
                for o in self.orphans
            ],
            "not_looked_at": [*self.refused, *self.skipped_checks],
        }  # fmt: skip


def drift(engine: Engine, environment: str, limit: timedelta = PREVIEW_TIMEOUT) -> Drift:
    """Return the drift of an environment. What was added by hand is left out if the refresh is refused.

    Raises:
        EngineError: if the engine cannot be run, does not report the drift, or the state cannot be read.
    """
    resources, refused = _refreshed(engine, environment, limit)
    if refused:
        return Drift(environment, refused=refused)
    state = engine.state(environment)
    resources_kept = KeptResource.of_state(state)
    added: list[AddedByHand] = []
    skipped_checks: list[str] = []
    for cloud in REVIEWABLE:
        own = [resource for resource in resources_kept if resource.type.startswith(f"{cloud}:")]
        try:
            added += added_by_hand(cloud, own) if own else []
        except CloudError as error:
            skipped_checks.append(
                f"what was added by hand could not be looked for on {cloud}: {error} {error.fix}".strip()
            )
    ordered = tuple(sorted(added, key=lambda a: (a.urn, a.kind, a.key)))
    orphans = _orphans(state, skipped_checks)
    return Drift(environment, resources, ordered, tuple(skipped_checks), (), pending_operations(state), orphans)


def _orphans(state: Mapping[str, Any], skipped_checks: list[str]) -> tuple[Orphan, ...]:
    """Return the resources of this stack's clusters that no stack knows. `skipped_checks`: gets the
    reasons why a cloud could not be asked."""
    known_ids, clock = list_ids(state), SystemClock.from_environment()
    orphans: list[Orphan] = []
    for manifest in declared_clusters(state):
        try:
            orphans += find_orphans(manifest, known_ids, clock, refused=skipped_checks)
        except CloudError as error:
            skipped_checks.append(f"{_unseen(manifest)}: {error} {error.fix}".strip())
        except ImportError as error:
            skipped_checks.append(f"{_unseen(manifest)}: its client is not installed ({error})")
    return tuple(orphans)


def _unseen(manifest: Manifest) -> str:
    return f"what belongs to no stack of cluster {manifest.cluster} could not be looked for on {manifest.cloud}"


def _refreshed(
    engine: Engine, environment: str, limit: timedelta
) -> tuple[tuple[DriftedResource, ...], tuple[str, ...]]:
    """Return the findings of the refresh, and the reasons why it could not be made."""
    with TemporaryDirectory(prefix="everspot-review-") as folder:
        log = Path(folder) / "events.jsonl"
        ended = engine.refresh(environment, log, limit)
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    if ended.code not in (0, DRIFTED) or ended.late:
        return (), refusals(lines, ended)
    drifted = tuple(_outcomes(lines))
    if ended.code == DRIFTED and not drifted:
        raise EngineError(f"{environment} has drifted, and the engine's event log does not say where")
    return drifted, ()


def _outcomes(lines: Sequence[str]) -> Iterator[DriftedResource]:
    """Yield the findings of a refresh, by its event log. The outcome of a step (`resOutputsEvent`) has them, not its
    beginning."""
    by_urn: dict[str, DriftedResource] = {}
    for line in lines:
        try:
            step = json.loads(line)["resOutputsEvent"]["metadata"]
            urn, kind, op = str(step["urn"]), str(step["type"]), step["op"]
        except (ValueError, KeyError, TypeError):  # another event, or a line that was cut
            continue
        if op in ("update", "delete"):
            changes = () if op == "delete" else tuple(_changes(step))
            by_urn[urn] = DriftedResource(urn, kind, resource_name(urn), op == "delete", changes)
    yield from (by_urn[urn] for urn in sorted(by_urn))


def _changes(step: Mapping[str, Any]) -> Iterator[PropertyChange]:
    old, new = ((step.get(side) or {}).get("outputs") or {} for side in ("old", "new"))
    for path in sorted(step.get("detailedDiff") or step.get("diffs") or ()):
        hide = confidential(old, path) or confidential(new, path)
        before, after = readable_sides(at(old, path), at(new, path), hide=hide)
        yield PropertyChange(path=path, before=before, after=after)
