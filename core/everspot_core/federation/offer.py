"""The document that decides which cluster may run a job that is offered to another cluster.

It is stored in the host's control bucket. Home and host change it only by conditional writes:

    OFFERED ──host──▶ ACCEPTED ──home or host──▶ RECALLED
       │                  └────────host────────────┴──▶ ENDED
       ├──host──▶ REFUSED
       └──home──▶ WITHDRAWN, which home may also write without an offer
"""

from enum import StrEnum

from pydantic import AliasChoices, Field

from everspot_core.documents import Document, Utc
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobState, Progress
from everspot_core.jobs.reported_values import Billed
from everspot_core.jobs.visit_records import HostInstance


class OfferState(StrEnum):
    """The states of an offer. The host runs the visit from ACCEPTED to ENDED, and at no other time."""

    OFFERED = "OFFERED"
    ACCEPTED = "ACCEPTED"
    RECALLED = "RECALLED"  # the visit must stop with a checkpoint and end
    REFUSED = "REFUSED"
    WITHDRAWN = "WITHDRAWN"
    ENDED = "ENDED"  # the visit's record is final

    @property
    def hosted(self) -> bool:
        """Whether the visit is, or will be, a job of the host."""
        return self in (OfferState.ACCEPTED, OfferState.RECALLED)

    @property
    def over(self) -> bool:
        """Whether the host will never run the visit again."""
        return self in (OfferState.REFUSED, OfferState.WITHDRAWN, OfferState.ENDED)


class VisitOffer(Document):
    """An offer of a job to another cluster, and its state."""

    visit: str
    home: str = Field(description="The cluster that offers the job.")
    state: OfferState
    submission: JobSubmission = Field(description="Of the visit, as the host creates it.")
    progress: Progress = Field(default=Progress(), description="The job's progress.")
    at: Utc = Field(description="When it was offered, by home's clock.")
    changed_at: Utc
    why: str = Field(default="", description="For people: why it was offered, refused, recalled or withdrawn.")
    end: JobState | None = Field(default=None, description="With ENDED: the state in which the visit ended.")
    returned: bool = Field(default=False, description="With ENDED: whether the job goes back to its home unfinished.")
    usd: Billed = Field(
        default=None, description="The cost of its instances so far, with ENDED the total, by the host's bill."
    )
    gpu_hours: Billed = Field(default=None, description="The same in GPU-hours.")
    instance: HostInstance | None = Field(
        default=None,
        validation_alias=AliasChoices("instance", "berth"),
        serialization_alias="berth",  # as in the first releases
        description="While it is hosted: its instance; None: it has none.",
    )
