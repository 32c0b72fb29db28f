"""The parts of a job's documents that describe its visits to other clusters."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pydantic import AliasChoices, ConfigDict, Field

from everspot_core.capacity.market import Market, PoolKey
from everspot_core.documents import Stored, Utc
from everspot_core.jobs.reported_values import Billed, Step

_OF_HOME, _OF_JOB = 12, 16  # hexadecimal digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The home of a visit. `cluster`: its name. `control_url`: of its control bucket."""

    cluster: str
    control_url: str


class Visit(Stored):
    """The reference from a visit's submission to the job at home."""

    home: str = Field(description="The cluster to which the job was submitted, and which stays responsible for it.")
    control_url: str = Field(default="", description="Its control bucket, by the URL that home uses.")
    job_id: str = Field(description="The job's id there.")
    number: int = Field(ge=1, description="Counts the visits of the job, to all clusters.")
    waits_since: Utc | None = Field(default=None, description="When it began to wait at home; None: its submission.")


class HostInstance(Stored):
    """The pool of the instance that a visit has at its host."""

    instance_type: str
    zone: str
    market: Market
    standing: bool = Field(default=False, description="Whether it belongs to a standing fleet, and is paid for anyway.")

    @property
    def pool(self) -> PoolKey:
        """The pool's key in plans."""
        return PoolKey(self.instance_type, self.zone, self.market)


class Away(Stored):
    """The part of a job's record while it is away: its cluster, and the last report from there. Stored documents and
    JSON output have the names of the first releases: `told`, `told_at` and `berth`."""

    model_config = ConfigDict(serialize_by_alias=True)

    cluster: str
    visit: str = Field(description="Its id there.")
    number: int = Field(ge=1)
    since: Utc
    waits_since: Utc | None = Field(default=None, description="When it had begun to wait at home; None: unknown.")
    why: str = Field(default="", description="Why it was sent there, as a sentence.")
    reported_state: str = Field(
        default="",
        validation_alias=AliasChoices("reported_state", "told"),
        serialization_alias="told",
        description="The last state of the offer, or of the visit's record.",
    )
    reported_at: Utc | None = Field(
        default=None, validation_alias=AliasChoices("reported_at", "told_at"), serialization_alias="told_at"
    )
    sent_bytes: int = Field(default=0, description="Bytes that were copied there.")
    usd: Billed = Field(
        default=None, description="The cost of its instances so far, by the host's bill; None: unknown."
    )
    instance: HostInstance | None = Field(
        default=None,
        validation_alias=AliasChoices("instance", "berth"),
        serialization_alias="berth",
        description="Its instance there; None: it has none, or unknown.",
    )
    sent_at: Utc | None = Field(
        default=None, description="When everything was copied, so that the offer could be made."
    )

    @property
    def offered_at(self) -> datetime:
        """The time of its offer, which is the same for every writer and attempt. A record of an earlier release has the
        time at which the job left."""
        return self.sent_at or self.since


class TripEnd(StrEnum):
    """How a trip ended."""

    REFUSED = "refused"  # by the host
    WITHDRAWN = "withdrawn"  # by home, before the host had accepted
    RETURNED = "returned"  # with its checkpoint, to go on elsewhere
    ENDED = "ended"  # the job itself ended there


class Trip(Stored):
    """An ended visit, or an offer that did not become a visit."""

    cluster: str
    visit: str
    number: int = Field(ge=1)
    since: Utc
    until: Utc
    end: TripEnd
    why: str = Field(default="", description="Why it ended, as a sentence.")
    step: Step = Field(default=0, description="The job's step at its end.")
    sent_bytes: int = Field(default=0, description="Bytes that were copied there.")
    brought_bytes: int = Field(default=0, description="Bytes that were copied back.")
    usd: Billed = Field(default=None, description="The cost of its instances, by the host's bill; None: unknown.")
    gpu_hours: Billed = Field(default=None, description="By the host's bill; None: unknown.")
    egress_usd: float = Field(default=0.0, description="The price of the copied bytes, by the manifest.")
    host_failed: bool = Field(
        default=False, description="Whether it was returned because the host's instances could not run the job."
    )


def visit_prefix(home: str) -> str:
    """Return the prefix of the ids of a home's visits in the stores of all hosts. `home`: the cluster's name. The
    permissions of a home's scheduler at a host are limited to this prefix."""
    return f"visit-{_digest(home)[:_OF_HOME]}-"


def visit_id(origin: Origin, job_id: str, submitted_at: datetime, number: int) -> str:
    """Return the id of a job's visit in the host's store: about 40 lower-case letters, digits and hyphens.

    Two homes may have jobs of one id, such as a sweep's trials, and a home may be created again under its name. So the
    id depends on the home, its bucket and the submission, and no visit finds the objects of another visit.
    """
    job_digest = _digest(origin.control_url, job_id, submitted_at.isoformat())
    return f"{visit_prefix(origin.cluster)}{job_digest[:_OF_JOB]}-v{number}"


def _digest(*words: str) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()
