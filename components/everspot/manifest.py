"""The manifest that carries a cluster's settings to its instances, and its copy `cluster.json`."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.price_table import PriceTable
from everspot_core.cluster.manifest import (
    DeclaredCapacity,
    Elastic,
    FleetOffer,
    Limits,
    Manifest,
    Metrics,
    Monitoring,
    Proxy,
    Standing,
)
from everspot_core.cluster.notify import Notifications
from everspot_core.cluster.peers import Peer
from everspot_core.documents import parse_duration
from everspot_core.governance.thresholds import Thresholds
from everspot_core.jobs.records import Role

from everspot.limits import LimitsArgs


def build_manifest(
    role: Role,
    *,
    cloud: str,
    cluster: str,
    limits: LimitsArgs,
    types: list[InstanceType],
    machine: Mapping[str, Any],
    facts: Mapping[str, str],
    standing: Standing | None = None,
    fleet: FleetOffer | None = None,
    elastic: Elastic | None = None,
    notifications: Notifications | None = None,
    scheduler_type: str | None = None,
    shares: Mapping[str, float] | None = None,
    team: str | None = None,
    shared_instances: bool = False,
    anomalies: Thresholds | None = None,
    monitoring: Monitoring | None = None,
    metrics: Metrics | None = None,
    proxy: Proxy | None = None,
    notice: timedelta | None = None,
    health_port: int | None = None,
    federation: tuple[Peer, ...] = (),
    internet: bool | None = None,
    job_images: bool | None = None,
    image_repositories: list[str] | None = None,
    list_prices: PriceTable | None = None,
    further_buckets: bool = False,
    read_buckets: list[str] | None = None,
) -> str:
    """Return the manifest of a role as JSON.

    `machine`: the content of the agents' launch template apart from the manifest. `facts`: region, control_url,
    data_url, account and job_role if the cloud has one, and for a manifest that names the queue, queue_url. `standing`,
    `fleet`, `elastic`, `notifications`, `scheduler_type`, `shares`, `team`, `shared_instances`, `anomalies`,
    `monitoring`, `federation`, `internet`, `job_images`, `image_repositories` and `list_prices` are for
    `cluster.json` only, `metrics` for the scheduler.
    """
    common = Manifest(
        cluster=cluster,
        cloud=cloud,
        region=facts["region"],
        control_url=facts["control_url"],
        data_url=facts["data_url"],
        account=facts.get("account", ""),
        job_role=facts.get("job_role"),
        further_buckets=further_buckets or None,
        read_buckets=read_buckets or None,
        notice=notice,
        health_port=health_port,
        proxy=proxy,
        limits=Limits.model_validate(limits),
        instance_types=types,
    )
    own = {
        "role": role,
        "queue_url": facts.get("queue_url"),
        "standing": standing,
        "fleet": fleet,
        "elastic": elastic,
        "notifications": notifications,
        "scheduler_type": scheduler_type,
        "list_prices": list_prices,
        "shares": dict(shares or {}),
        "team": team,
        "shared_instances": shared_instances,
        "anomalies": anomalies,
        "monitoring": monitoring,
        "metrics": metrics,
        "federation": federation,
        "internet": internet,
        "job_images": job_images,
        "image_repositories": image_repositories,
        "generation": generation(common, machine),
    }
    return _as_json(common.model_copy(update=own))


def build_declared(capacity: Sequence[str]) -> str:
    """Return `declared.json`: the names of the fleets and groups of a cluster's stack."""
    return json.dumps(json.loads(DeclaredCapacity(capacity=sorted(capacity)).to_json()), separators=(",", ":"))


def with_idle_limit(manifest: str, idle_limit: str) -> str:
    """Return the manifest of elastic instances: the agents' one with an idle limit. Its generation stays the same, so
    that no instance is replaced because the limit changes.

    The agent waits for its orphan limit longer than the scheduler, which usually ends the instance first.
    """
    agents = Manifest.read(manifest)
    limits = agents.limits.model_copy(update={"idle_limit": parse_duration(idle_limit) + agents.limits.orphan_limit})
    return _as_json(agents.model_copy(update={"limits": limits}))


def generation(common: Manifest, machine: Mapping[str, Any]) -> str:
    """Return the digest of everything that an agent is launched with: the common part of the cluster's manifests, and
    its machine.

    It does not depend on the role or on the sizes of the fleets. Nor does it on a field of the manifest that is None:
    a release that adds one for `cluster.json` alone lets it be None, so that an upgrade replaces no instance for it.
    """
    made_of = json.dumps(machine, sort_keys=True, default=str).encode()
    return hashlib.sha256(common.to_json() + made_of).hexdigest()[:12]


def _as_json(manifest: Manifest) -> str:
    return json.dumps(json.loads(manifest.to_json()), separators=(",", ":"))
