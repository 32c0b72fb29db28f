"""The durations by which a cluster's machines guard themselves, as settings, and the manifest made of them."""

import hashlib
import json
from collections.abc import Mapping
from typing import NotRequired, TypedDict

from everspot_core.catalogue import InstanceType
from everspot_core.manifest import Cloud, Limits, Manifest, limit_problems
from everspot_core.problems import Problems
from everspot_core.records import Role


class LimitsArgs(TypedDict):
    """Durations such as 45s, 10m or 1h30m; each has a default that suits real clouds."""

    lease_ttl: NotRequired[str]
    """An owner that is silent for this long is dead. Default: 60s."""
    beat_every: NotRequired[str]
    """Lease renewal and heartbeat; at least 5s. Default: 10s."""
    poll_every: NotRequired[str]
    """How often an agent looks for its assignment. Default: 2s."""
    tick_every: NotRequired[str]
    """How often the scheduler decides. Default: 5s."""
    notice_poll: NotRequired[str]
    """How often an agent asks the metadata service for notices; AWS advises 5s or less. Default: 2s."""
    idle_limit: NotRequired[str]
    """Burst instances shut down after this long without a job. Default: never."""
    orphan_limit: NotRequired[str]
    """Instances shut down when they could not reach the store for this long. Default: 15m."""
    archive_after: NotRequired[str]
    """Jobs and instances that have ended for so long leave the tables that the scheduler lists. Default: 1h."""
    stop_margin: NotRequired[str]
    """What still runs is killed this long before the instance is taken. Default: 5s."""


def check_limits(problems: Problems, args: LimitsArgs) -> None:
    """Add what is wrong with the durations, one by one and together."""
    limits = problems.model(Limits, args)
    if limits is not None:
        limit_problems(problems, limits)


def build_manifest(
    role: Role,
    *,
    cluster: str,
    limits: LimitsArgs,
    types: list[InstanceType],
    image_id: str,
    facts: Mapping[str, str],
) -> str:
    """The manifest of a role as JSON. `facts`: region, control_url, data_url, and queue_url where it is to be told."""
    manifest = Manifest(
        cluster=cluster,
        cloud=Cloud.AWS,
        role=role,
        region=facts["region"],
        control_url=facts["control_url"],
        data_url=facts["data_url"],
        queue_url=facts.get("queue_url"),
        limits=Limits.model_validate(limits),
        instance_types=types,
    )
    # The image belongs to the generation, although it is not in the manifest: it decides what runs there.
    digest = hashlib.sha256(manifest.to_json() + image_id.encode()).hexdigest()[:12]
    return json.dumps(json.loads(manifest.model_copy(update={"generation": digest}).to_json()), separators=(",", ":"))
