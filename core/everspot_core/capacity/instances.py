"""The record that an instance writes about itself (its heartbeat), and the notices that it has seen."""

from enum import StrEnum

from pydantic import Field

from everspot_core.capacity.market import Market
from everspot_core.documents import Document, Stored, Utc


class Role(StrEnum):
    """The role of an instance: it runs jobs, or the scheduler, or it is a node on which agents are pods."""

    AGENT = "agent"
    SCHEDULER = "scheduler"
    NODE = "node"


class InstanceState(StrEnum):
    """READY takes a job; BUSY has one; DRAINING takes none any more; CORDONED has found itself unfit and says why in
    `detail`; GONE is its last report before it shuts down."""

    READY = "READY"
    BUSY = "BUSY"
    DRAINING = "DRAINING"
    CORDONED = "CORDONED"
    GONE = "GONE"


class NoticeKind(StrEnum):
    """Kinds of notice that the cloud gives an instance."""

    INTERRUPTION = "interruption"
    REBALANCE = "rebalance"


class Notice(Stored):
    """The cloud's notice to an instance. `action_at`: when the instance is taken away; None for a recommendation."""

    kind: NoticeKind
    source: str = Field(description="The path by which it came: metadata or queue.")
    seen_at: Utc
    action_at: Utc | None = None


class Resident(Stored):
    """A job on an instance, and the epoch of its lease."""

    job_id: str
    epoch: int


AGENT_FAULT = "the agent "
"""The beginning of the detail of an instance whose agent is at fault."""


class InstanceRecord(Document):
    """The heartbeat of an instance, in which its agent describes the instance. Only that agent writes it."""

    instance_id: str
    cluster: str
    role: Role
    instance_type: str
    zone: str
    market: Market
    vcpus: int
    memory_gib: float
    gpus: int = 0
    gpu: str | None = None
    gpu_memory_gib: float = 0
    state: InstanceState
    job_id: str | None = Field(default=None, description="The job that has the instance alone, under `epoch`.")
    epoch: int | None = None
    residents: tuple[Resident, ...] = Field(default=(), description="The jobs that share it.")
    notice: Notice | None = None
    agent_version: str = ""
    python: str = Field(default="", description="Version of its Python, such as 3.12, by which wheels are chosen.")
    generation: str = Field(default="", description="`Manifest.generation` that it was launched with.")
    detail: str = Field(default="", description="For people: why it is CORDONED, why it is not ready.")
    booted_at: Utc
    beat: int = 0
    updated_at: Utc

    @property
    def runs(self) -> tuple[Resident, ...]:
        """The jobs that its agent reported as running, alone or beside others."""
        if self.job_id is None or self.epoch is None:
            return self.residents
        return (Resident(job_id=self.job_id, epoch=self.epoch),)
