"""The ledger of instances: when each began and stopped costing money, the prices, and which instances were useless."""

from enum import StrEnum

from pydantic import Field

from everspot_core.documents import Document, Utc
from everspot_core.jobs.records import Market, Role

UNKNOWN = "unknown"
"""The source of an end at an unknown time, which is written at the time of the launch."""


class LaunchRecord(Document):
    """The launch of an instance: from then on it costs money. Written once by a scheduler."""

    instance_id: str
    instance_type: str
    zone: str
    market: Market
    role: Role = Role.AGENT
    image: str = Field(default="", description="Of the machine, as the cloud names it.")
    launched_at: Utc
    node: str = Field(default="", description="Of a pod: the machine that it is on, which may be in the ledger too.")
    node_share: float = Field(default=1.0, gt=0, le=1, description="The part of its machine that is billed.")


class EndRecord(Document):
    """The end of an instance: from then on it costs no money."""

    instance_id: str
    ended_at: Utc
    interrupted: bool = Field(description="Whether the cloud took it; false if we stopped it.")
    source: str = Field(default="", description="Where the end was learnt: event, describe, observed; or unknown.")


class PricePoint(Document):
    """From `at` on, an hour of this pool cost `usd_per_hour`, as the cloud stated it. Written once."""

    instance_type: str
    zone: str
    market: Market
    at: Utc
    usd_per_hour: float = Field(ge=0, le=1e6, allow_inf_nan=False)
    source: str


class FaultKind(StrEnum):
    """The fault of an instance."""

    NEVER_REPORTED = "never_reported"  # its agent did not report within the boot deadline
    GPUS = "gpus"  # fewer GPUs are seen than its type has, or one of them fails
    DISK = "disk"  # too little room for jobs
    AGENT = "agent"  # its agent could start no job, or was restarted again and again
    JOBS = "jobs"  # different jobs failed on it

    @property
    def cordons(self) -> bool:
        """Whether an instance with this fault still reports, so that it can get the order to leave."""
        return self is not FaultKind.NEVER_REPORTED


class FaultRecord(Document):
    """A useless instance, written once by a scheduler. An image or a pool with several of them is suspect."""

    instance_id: str
    instance_type: str
    zone: str
    market: Market
    kind: FaultKind
    generation: str = ""
    image: str = Field(default="", description="Of the machine, as the cloud names it.")
    detail: str = ""
    at: Utc
