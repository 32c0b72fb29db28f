"""The records of a job's visits to other clusters, in the job's own documents."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pydantic import Field

from everspot_core.capacity.market import Market, PoolKey
from everspot_core.documents import Stored, Utc
from everspot_core.jobs.reported_values import Billed, Step

_OF_HOME, _OF_JOB = 12, 16  # hexadecimal digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A home as its visits name it. `cluster`: its name; `control_url`: of its own control bucket."""

    cluster: str
    control_url: str


class Visit(Stored):
    """The reference to the home's job, in the submission of a visit."""

    home: str = Field(description="The cluster to which the job was submitted, and which stays responsible for it.")
    control_url: str = Field(default="", description="Its control bucket, as it calls it itself.")
    job_id: str = Field(description="The job's id there.")
    number: int = Field(ge=1, description="Counts the visits of the job, to whichever cluster.")
    waits_since: Utc | None = Field(default=None, description="When it began to wait at home; None: its submission.")


class Berth(Stored):
    """The instance that a visit has at its host, by its pool."""

    instance_type: str
    zone: str
    market: Market
    standing: bool = Field(default=False, description="It was not launched for a job, and is paid for anyway.")

    @property
    def pool(self) -> PoolKey:
        """The pool, as plans name it."""
        return PoolKey(self.instance_type, self.zone, self.market)


class Away(Stored):
    """In the record of a job that is away: where it is, and what was last heard of it."""

    cluster: str
    visit: str = Field(description="Its id there.")
    number: int = Field(ge=1)
    since: Utc
    waits_since: Utc | None = Field(default=None, description="When it had begun to wait at home; None: not told.")
    why: str = Field(default="", description="For people: why it was sent there.")
    told: str = Field(default="", description="The last state of the offer, or of the visit's record.")
    told_at: Utc | None = None
    sent_bytes: int = Field(default=0, description="What was copied there.")
    usd: Billed = Field(default=None, description="Of its instances so far, by the host's bill; None: not told.")
    berth: Berth | None = Field(default=None, description="Its instance there; None: it has none, or it is not told.")
    sent_at: Utc | None = Field(default=None, description="When all was copied, and there could be an offer.")

    @property
    def offered_at(self) -> datetime:
        """The time of its offer, which is the same for every writer and attempt. An earlier release's is the time at
        which the job left."""
        return self.sent_at or self.since


class TripEnd(StrEnum):
    """How a trip ended."""

    REFUSED = "refused"  # by the host
    WITHDRAWN = "withdrawn"  # by home, before the host had accepted
    RETURNED = "returned"  # with its checkpoint, to go on elsewhere
    ENDED = "ended"  # the job itself ended there


class Trip(Stored):
    """A visit that is over, or an offer that came to nothing."""

    cluster: str
    visit: str
    number: int = Field(ge=1)
    since: Utc
    until: Utc
    end: TripEnd
    why: str = Field(default="", description="For people: why it ended so.")
    step: Step = Field(default=0, description="How far the job was at its end.")
    sent_bytes: int = Field(default=0, description="What was copied there.")
    brought_bytes: int = Field(default=0, description="What was copied back.")
    usd: Billed = Field(default=None, description="Of its instances, by the host's own bill; None: not known.")
    gpu_hours: Billed = Field(default=None, description="By the host's own bill; None: not known.")
    egress_usd: float = Field(default=0.0, description="The copied bytes at the price of the manifest.")


def visit_prefix(home: str) -> str:
    """Return how the ids of a home's visits begin in the stores of all hosts. `home`: the cluster's name. Permissions
    of a home's scheduler at a host name it."""
    return f"visit-{_digest(home)[:_OF_HOME]}-"


def visit_id(origin: Origin, job_id: str, submitted_at: datetime, number: int) -> str:
    """Return the id of a job's visit, in the host's store: of small letters, digits and hyphens, about 40 of them.

    Two homes may have jobs of one id, such as a sweep's trials, and a home may be made again under its name. So the id
    tells the home, its bucket and the submission apart, and no visit ever meets what another one has left.
    """
    job_digest = _digest(origin.control_url, job_id, submitted_at.isoformat())
    return f"{visit_prefix(origin.cluster)}{job_digest[:_OF_JOB]}-v{number}"


def _digest(*words: str) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()
