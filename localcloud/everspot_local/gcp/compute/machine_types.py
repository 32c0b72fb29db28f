"""Stands in for Compute Engine's machine and accelerator types: those of the market's catalogue, and no others.

A catalogue's type is a machine type with the GPUs that it is sold with: `g2-standard-4` includes its own,
`n1-standard-8+t4` is an n1-standard-8 with one attached. It knows no custom machine types.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from everspot_core.capacity.catalogue import Catalogue, InstanceType

from everspot_local.gcp.answers import invalid
from everspot_local.gcp.compute.names import tail

ACCELERATORS = {
    ("T4", 16): "nvidia-tesla-t4", ("V100", 16): "nvidia-tesla-v100", ("L4", 24): "nvidia-l4",
    ("A100", 40): "nvidia-tesla-a100", ("A100", 80): "nvidia-a100-80gb", ("H100", 80): "nvidia-h100-80gb",
}  # fmt: skip
"""By GPU and its memory in GiB. Compute Engine, "GPU machine types"."""
_ATTACHED = {"nvidia-tesla-t4": "t4", "nvidia-tesla-v100": "v100"}
"""Suffixes in the catalogue of GPUs that are attached to a machine type without its own."""


def accelerator_name(kind: InstanceType) -> str:
    """Return the name of a catalogue type's accelerator type; empty if it has none."""
    return ACCELERATORS.get((kind.gpu or "", int(kind.gpu_memory_gib)), "")


def machine_type_name(catalogue_type: str) -> str:
    """Return the name of a catalogue type's machine type."""
    return catalogue_type.partition("+")[0]


def machine_types(catalogue: Catalogue) -> dict[str, InstanceType]:
    """Return the machine types by name, each with a catalogue's type that has its resources."""
    return {machine_type_name(name): kind for name, kind in reversed(list(catalogue.types.items()))}


def catalogue_type(
    catalogue: Catalogue, machine_type: str, accelerators: Sequence[Mapping[str, Any]], zone: str, field: str
) -> str:
    """Return the name of the catalogue's type of a machine with its accelerators.

    Args:
        catalogue: what is sold.
        machine_type: its name or a link to it.
        accelerators: `guestAccelerators` of a request.
        zone: where it is asked for; empty for a template, which has none.
        field: path of the properties in the request, for what is refused: `resource` or `resource.properties`.

    Raises:
        ApiError: for types that do not exist or do not fit each other.
    """
    name, where = tail(machine_type), f" in zone '{zone}'" if zone else ""
    if name not in machine_types(catalogue):
        message = f"Machine type with name '{name}' does not exist{where}."
        raise invalid(f"{field}.machineType", machine_type, message)
    own = catalogue.types.get(name)
    if not accelerators:
        if own is None:
            # The catalogue sells this machine type with GPUs alone.
            message = f"Machine type with name '{name}' does not exist{where} without accelerators."
            raise invalid(f"{field}.machineType", machine_type, message)
        return name
    return _with_accelerators(catalogue, name, own, accelerators, f"{field}.guestAccelerators")


def _with_accelerators(
    catalogue: Catalogue, name: str, own: InstanceType | None, accelerators: Iterable[Mapping[str, Any]], field: str
) -> str:
    accelerator_counts = [
        (tail(str(a.get("acceleratorType", ""))), int(a.get("acceleratorCount", 0))) for a in accelerators
    ]
    for kind, count in accelerator_counts:
        if kind not in ACCELERATORS.values():
            raise invalid(f"{field}[0].acceleratorType", kind, "The referenced accelerator type does not exist.")
        if count < 1:
            raise invalid(f"{field}[0].acceleratorCount", count, "The count must be at least 1.")
    if len(accelerator_counts) > 1:
        raise invalid(field, "", "Only one accelerator type can be attached to an instance.")
    ((kind, count),) = accelerator_counts
    if own is not None and own.gpus and (accelerator_name(own), own.gpus) == (kind, count):
        return name
    instance_type = catalogue.types.get(f"{name}+{_ATTACHED.get(kind, '')}")
    if instance_type is None or instance_type.gpus != count:
        # As met: "[n1-standard-8, nvidia-l4] features are not compatible for creating instance."
        raise invalid(field, kind, f"[{name}, {kind}x{count}] features are not compatible for creating instance.")
    return instance_type.name
