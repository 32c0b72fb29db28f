"""The manifest: the facts that an instance needs to join its cluster. Infrastructure passes nothing else to an
instance.

The components write it where the cloud hands it to an instance (at most 16 KB); the agent reads it from the metadata
service. The CLI reads the same document as `cluster.json` in the control bucket. It holds no secrets. The agent asks
the metadata service for the facts that differ between instances (id, type, zone, market).
"""

import sys
from datetime import timedelta
from typing import Any

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.price_table import PriceTable
from everspot_core.cluster.notify import Notifications
from everspot_core.cluster.peers import Peer
from everspot_core.documents import Document, Duration, Frozen, format_duration, is_stored, parse_duration
from everspot_core.governance.thresholds import Thresholds
from everspot_core.jobs.records import Market, Role
from everspot_core.validation.model_errors import translate_errors
from everspot_core.validation.problems import BadInputs, Problem, Problems, camel, shown

USER_DATA_LIMIT = 16 * 1024


BUSY_BEATS = 30
QUIET_FACTOR = 2
"""While nothing changes, a scheduler's ticks are this many times as far apart."""


class Limits(Frozen):
    """Intervals and time limits of a cluster's machines, in real time of each machine, not market time."""

    lease_ttl: Duration = Field(default="60s", validate_default=True, description="A silent owner is dead after this.")
    beat_every: Duration = Field(
        default="10s",
        validate_default=True,
        description="Heartbeat of an instance without a job; the least interval of lease renewals.",
    )
    poll_every: Duration = Field(default="2s", validate_default=True, description="Agent looks for its assignment.")
    tick_every: Duration = Field(default="5s", validate_default=True, description="Scheduler's loop.")
    notice_poll: Duration = Field(default="2s", validate_default=True, description="Metadata service, for notices.")
    idle_limit: Duration | None = Field(
        default=None, description="Shut down after this long without a job. Elastic instances only."
    )
    orphan_limit: Duration = Field(
        default="15m", validate_default=True, description="Shut down when the store could not be reached for this long."
    )
    boot_deadline: Duration = Field(
        default="10m",
        validate_default=True,
        description="An instance whose agent has not reported by then ends itself. With eight GPUs or more it has "
        "twice as long, bare metal three times.",
    )
    archive_after: Duration = Field(
        default="1h",
        validate_default=True,
        description="What has ended for so long leaves the tables that the scheduler lists.",
    )
    stop_margin: Duration = Field(
        default="5s", validate_default=True, description="Kill what still runs this long before the instance is taken."
    )

    @property
    def longest_tick(self) -> timedelta:
        """The longest time between two ticks of a scheduler that has a job: that of quiet ticks."""
        return QUIET_FACTOR * self.tick_every

    def beat_interval(self, *, busy: bool) -> timedelta:
        """Return the time between two heartbeats of an instance. An instance with a job shows that it is alive by
        renewing the job's lease, and the rest of its heartbeat seldom changes; a change is written immediately."""
        return self.beat_every * BUSY_BEATS if busy else self.beat_every

    @field_validator("beat_every")
    @classmethod
    def _not_too_often(cls, value: Duration) -> Duration:
        if value.total_seconds() < 5:
            raise ValueError("beat_every must be at least 5s: no object is rewritten more often than that")
        return value


LIMIT_BOUNDS = {
    "lease_ttl": ("10s", "1h"),
    "beat_every": ("5s", "10m"),
    "poll_every": ("0.1s", "5m"),
    "tick_every": ("0.1s", "10m"),
    # A notice leaves 120 s on one cloud and 30 s on another; to ask every 5 s is advised.
    "notice_poll": ("0.1s", "15s"),
    "idle_limit": ("10s", "7d"),
    "orphan_limit": ("30s", "1d"),
    "boot_deadline": ("1m", "2h"),
    # Sooner, what asks for a job that has just ended would have to look through the archive.
    "archive_after": ("10m", "30d"),
    "stop_margin": ("0s", "1m"),
}
"""Shortest and longest value of each limit. Beyond them a cluster would send too many requests, or notice failures too
late."""


def limit_problems(problems: Problems, limits: Limits) -> None:
    """Add each duration that is out of its bounds, and durations that contradict each other."""
    outside = set()
    for name, (low, high) in LIMIT_BOUNDS.items():
        value: timedelta | None = getattr(limits, name)
        if value is not None and not parse_duration(low) <= value <= parse_duration(high):
            outside.add(name)
            problems.add(camel(name), f"has to lie between {low} and {high}, not {format_duration(value)}")
    problems.need(
        bool(outside & {"lease_ttl", "beat_every"}) or limits.lease_ttl >= 2 * limits.beat_every,
        "leaseTtl",
        f"{format_duration(limits.lease_ttl)} has to be at least twice beatEvery "
        f"({format_duration(limits.beat_every)}): one lost heartbeat must not end a job",
    )


class Standing(Frozen):
    """The declared size of the standing fleets, in units, and the weight of each type.

    Instances beyond it leave once they are idle, never while they are busy.
    """

    on_demand_units: int = Field(default=0, ge=0)
    spot_units: int = Field(default=0, ge=0)
    weights: dict[str, float] = Field(default_factory=dict, description="Units by instance type; 1 where it is silent.")


class FleetOffer(Frozen):
    """The types, zones and markets of the cluster's instances. The CLI checks jobs against it at submission."""

    types: list[str] = Field(description="Instance types.")
    zones: list[str] = Field(default_factory=list, description="Availability zones; empty: those of given subnets.")
    markets: list[Market] = Field(default_factory=list, description="How instances are paid, as declared now.")


class Elastic(Frozen):
    """The elastic capacity: the instances that the scheduler may launch beside the standing fleets, and the limits."""

    types: list[str] = Field(description="Instance types, in the order of their worth to the cluster's author.")
    markets: list[Market] = Field(description="How instances may be paid.")
    max_instances: int = Field(ge=0, description="So many at once, at the most; running ones and those on their way.")
    max_usd_per_hour: float | None = Field(default=None, description="What all of them may cost an hour; None: no cap.")
    idle_limit: Duration = Field(
        default="5m", validate_default=True, description="One without work is let go after this, market time."
    )
    template: str = Field(description="What they are launched from, as the cloud names it: a launch template's id.")
    template_version: str = Field(description="Its version.")
    places: dict[str, str] = Field(description="By zone, the cloud's own name of the place there: a subnet's id.")
    zones: dict[str, list[str]] = Field(
        default_factory=dict, description="By type, the only zones in which it is launched; all of them where silent."
    )
    max_prices: dict[str, float] = Field(
        default_factory=dict,
        description="The most that is paid for an hour of Spot, USD, by type; any where silent.",
    )
    tags: dict[str, str] = Field(
        default_factory=dict, description="What instances are tagged with, beside the tags by which they are found."
    )

    def offers(self, instance_type: str, zone: str, market: Market) -> bool:
        """Return whether an instance of this type may be launched in this zone and market."""
        here = zone in self.places and zone in self.zones.get(instance_type, [zone])
        return here and instance_type in self.types and market in self.markets


class Monitoring(Frozen):
    """Where the scheduler puts a few figures of the cluster, for alarms and dashboards of the cloud."""

    namespace: str = Field(min_length=1, max_length=255, description="Under which name the cloud keeps them.")


METRICS_PORT = 9494
"""Where a scheduler answers Prometheus unless it is told otherwise."""


class Metrics(Frozen):
    """Where other machines may read the scheduler's metrics."""

    port: int = Field(ge=1, le=65535, description="On every IPv4 address of the machine.")


class Proxy(Frozen):
    """How the machines of an existing network reach the outside."""

    url: str = Field(description="http://host:port, without credentials.")
    no_proxy: tuple[str, ...] = Field(description="Hosts, domains and blocks that are reached without it.")

    def environment(self) -> dict[str, str]:
        """Return the environment variables of a proxy, in both spellings: curl reads some in lower case only."""
        pairs = {"HTTPS_PROXY": self.url, "HTTP_PROXY": self.url, "NO_PROXY": ",".join(self.no_proxy)}
        return {**pairs, **{name.lower(): value for name, value in pairs.items()}}


def _is_weight(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


class Manifest(Document):
    """The facts about a cluster that an instance, or the CLI, needs."""

    cluster: str
    cloud: str = Field(
        pattern=r"^[a-z][a-z0-9-]*$",
        description="Where the instances come from, by the cloud's name; `folder`: agents are started by hand.",
    )
    role: Role = Role.AGENT
    region: str = ""
    account: str = Field(
        default="",
        description="The cloud account of the instances, such as a project's id. Empty: that of the credentials.",
    )
    notice: Duration | None = Field(
        default=None,
        description="The notice that was requested before a spot instance is taken, on clouds where it can be chosen. "
        "None: the cloud's notices contain their time.",
    )
    health_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="The port at which agents answer the cloud's health checks, at /healthz. None: none is answered.",
    )
    control_url: str = Field(
        description="URL of the bucket or folder of records, leases and events, of a form that the store reads. "
        "Where it may have a region and has none, the bucket lies in the manifest's."
    )
    data_url: str = Field(description="The same for checkpoints, datasets, code and logs.")
    job_role: str | None = Field(
        default=None,
        description="The role of the cloud that limits a job's credentials to what that job needs: the one that agents "
        "become for the job, or the one by which it deletes. None: jobs have the instance's own permissions.",
    )
    further_buckets: bool | None = Field(
        default=None,
        description="Whether jobs may read buckets beside the store's; their role says which. None: they may not.",
    )
    read_buckets: list[str] | None = Field(
        default=None,
        description="Buckets beside the store's that jobs may read, by name, on clouds whose limits of a job's "
        "credentials name each bucket. None: none.",
    )
    queue_url: str | None = Field(default=None, description="Queue of the cloud's events; schedulers only.")
    generation: str = Field(
        default="",
        description="Digest of what an instance is launched with (image, machine, limits, declared types; not the "
        "target): tells old instances and new ones apart.",
    )
    standing: Standing | None = Field(
        default=None, description="In `cluster.json` only: a change of size must not change the user data."
    )
    fleet: FleetOffer | None = Field(
        default=None,
        description="In `cluster.json` only. None: whoever starts instances by hand decides what they are.",
    )
    elastic: Elastic | None = Field(
        default=None,
        description="In `cluster.json` only: what the scheduler may launch. None: it launches and releases nothing.",
    )
    list_prices: PriceTable | None = Field(
        default=None,
        description="In `cluster.json` only: the prices of the cluster's types that its stack was declared with. None: "
        "the catalogue has all of them.",
    )
    scheduler_type: str | None = Field(
        default=None, description="In `cluster.json` only: the scheduler's machine, which takes of quotas too."
    )
    shares: dict[str, float] = Field(
        default_factory=dict,
        description="In `cluster.json` only: the weight of each team (the jobs' tag Team) where jobs wait for their "
        "turn; 1 where it is not named.",
    )
    team: str | None = Field(
        default=None,
        description="In `cluster.json` only: the stack's tag Team, which jobs without this tag get when they are "
        "submitted.",
    )
    shared_instances: bool = Field(
        default=False,
        description="In `cluster.json` only: whether jobs that may share (`resources.shared`) are put beside each "
        "other on one instance.",
    )
    internet: bool | None = Field(
        default=None,
        description="In `cluster.json` only: whether jobs reach the internet. None: not known, as in a network that "
        "existed before the cluster.",
    )
    job_images: bool | None = Field(
        default=None,
        description="In `cluster.json` only: whether an instance can run a job in an image of the job's own. None: not "
        "known.",
    )
    image_repositories: list[str] | None = Field(
        default=None,
        description="In `cluster.json` only: the repositories of registries, HOST/REPOSITORY, from which instances may "
        "fetch the images of jobs; one that ends with a slash: all that begins with it. None: none.",
    )
    federation: tuple[Peer, ...] = Field(
        default=(), description="In `cluster.json` only: the clusters with which jobs are exchanged."
    )
    proxy: Proxy | None = Field(default=None, description="For agents, scheduler and jobs; None: no proxy.")
    notifications: Notifications | None = Field(
        default=None, description="In `cluster.json` only, where the scheduler reads it again and again."
    )
    anomalies: Thresholds | None = Field(
        default=None, description="In `cluster.json` only: from where on something is not as usual. None: as usual."
    )
    monitoring: Monitoring | None = Field(
        default=None, description="In `cluster.json` only. None: the cloud keeps no figures."
    )
    metrics: Metrics | None = Field(
        default=None,
        description="Schedulers only. None: they answer Prometheus on the loopback address of their machine alone.",
    )
    limits: Limits = Limits()
    instance_types: list[InstanceType] = Field(
        default_factory=list, description="Types declared in place, which the catalogue lacks."
    )

    @field_validator("shares", mode="before")
    @classmethod
    def _weights(cls, value: Any, info: ValidationInfo) -> Any:
        """Leave invalid weights of a stored document out: one would spoil the queue of every team."""
        if not isinstance(value, dict):
            return value
        bad = [team for team, weight in value.items() if not _is_weight(weight)]
        if bad and not is_stored(info):
            allowed = "has to be a finite number greater than 0, not "
            raise BadInputs("shares", [Problem(str(team), f"{allowed}{shown(value[team])}") for team in bad])
        return {team: weight for team, weight in value.items() if team not in bad}


class DeclaredCapacity(Document):
    """The document `declared.json`: the fleets and groups with which the cluster's stack keeps instances running.

    The infrastructure writes it at the end of each update, so that other fleets and groups that keep instances running
    can be found.
    """

    capacity: list[str] = Field(
        default_factory=list, description="Fleets and groups, the scheduler's included, by their cloud's names."
    )


def left_out(data: bytes | str) -> list[Problem]:
    """Return the fields of a manifest's JSON that `Manifest.read` ignores, for a warning in the log.

    They are fields that this release does not know, because they are misspelt or newer, and invalid weights.
    """
    try:
        Manifest.read_strictly(data)
    except ValidationError as error:
        return translate_errors(error, Manifest)
    return []
