"""Instance types: what each has, where it exists, and what it costs by which dated source."""

from pydantic import Field

from everspot_core.documents import Frozen


class InstanceType(Frozen):
    """What an instance of this type has. Memory in GiB; `gpu_memory_gib` is of each GPU."""

    name: str
    arch: str = Field(default="x86_64", description="x86_64 or arm64.")
    vcpus: int = Field(ge=1)
    memory_gib: float = Field(gt=0)
    gpus: int = Field(default=0, ge=0)
    gpu: str | None = None
    gpu_memory_gib: float = Field(default=0, ge=0)
    on_demand_usd_per_hour: float | None = Field(
        default=None, gt=0, description="Only for types declared in place; the catalogue keeps prices by region and date."
    )
