"""The names of instance types: the machine type, for N1 with the GPUs that are attached to it, as in n1-standard-8+t4.

All other machine types with GPUs have them built in (Compute Engine documentation, "GPU machine types"). It uses only
the standard library, because the metadata reader needs it.
"""

import re
from dataclasses import dataclass

ATTACHED = {
    "t4": "nvidia-tesla-t4",
    "v100": "nvidia-tesla-v100",
    "p100": "nvidia-tesla-p100",
    "p4": "nvidia-tesla-p4",
}
"""GPUs that can be attached, by their names here: accelerator types of the Compute API."""

VCPUS_AT_MOST: dict[str, dict[int, int]] = {
    "t4": {1: 48, 2: 48, 4: 96},
    "p4": {1: 24, 2: 48, 4: 96},
    "v100": {1: 12, 2: 24, 4: 48, 8: 96},
    "p100": {1: 16, 2: 32, 4: 96},
}
"""The numbers of each GPU that can be attached, and the most vCPUs that a machine with so many may have (Compute Engine
documentation, "GPU machine types", N1)."""

_FAMILY = "n1-"
_VCPUS = re.compile(r"^n1-(?:standard|highmem|highcpu)-(\d+)\Z")
_NAME = re.compile(r"^(?P<machine>[a-z][a-z0-9-]*)(?:\+(?:(?P<count>[1-9]\d?)x)?(?P<gpu>[a-z0-9]+))?\Z")
_DESCRIBED = "Everspot "


@dataclass(frozen=True, slots=True)
class Machine:
    """A type in the API's terms. `accelerator`: the attached GPU, `count` of them; empty for none."""

    machine: str
    accelerator: str = ""
    count: int = 0

    @property
    def attached(self) -> bool:
        """Whether its GPUs are attached. Such a type has to be requested alone."""
        return bool(self.accelerator)


def parse_type(instance_type: str) -> Machine:
    """Return a type's machine type and its attached GPUs.

    Raises:
        ValueError: if it is no name of a type.
    """
    match = _NAME.match(instance_type)
    if match is None or (match["gpu"] and match["gpu"] not in ATTACHED):
        examples = ", ".join(f"n1-standard-8+{gpu}" for gpu in ATTACHED)
        raise ValueError(f"{instance_type!r} is not a type such as g2-standard-4, {examples} or n1-standard-16+2xt4")
    if not match["gpu"]:
        return Machine(match["machine"])
    return Machine(match["machine"], ATTACHED[match["gpu"]], int(match["count"] or 1))


def attached_problem(instance_type: str) -> str | None:
    """Return the mistake in a type's number of attached GPUs, or in its vCPUs for it; None if there is no mistake, or
    no GPU is attached."""
    match = _NAME.match(instance_type)
    if match is None or match["gpu"] not in ATTACHED:
        return None
    counts, count = VCPUS_AT_MOST[match["gpu"]], int(match["count"] or 1)
    if not match["machine"].startswith(_FAMILY):
        return f"{match['gpu']} can be attached to N1 machine types alone, not to {match['machine']}"
    if count not in counts:
        return f"{' or '.join(map(str, counts))} {match['gpu']} can be attached, not {count}"
    sized = _VCPUS.match(match["machine"])
    if sized is not None and int(sized[1]) > counts[count]:
        return f"a machine with {count} {match['gpu']} has at most {counts[count]} vCPUs, not {sized[1]}"
    return None


def type_name(machine: str, accelerator: str = "", count: int = 0) -> str:
    """Return the name of a type. Built-in GPUs, which the API describes like attached ones, are not part of the
    name."""
    if not machine.startswith(_FAMILY) or not accelerator:
        return machine
    gpu = next((short for short, name in ATTACHED.items() if name == accelerator), accelerator)
    return f"{machine}+{gpu}" if count == 1 else f"{machine}+{count}x{gpu}"


def description(instance_type: str) -> str:
    """Return the text for an instance's description, which tells the attached GPUs to its metadata reader."""
    return f"{_DESCRIBED}{instance_type}"


def described(text: str, machine: str) -> str:
    """Return the type that a description names, if it is about this machine type; otherwise the machine type."""
    described_type = text.strip().removeprefix(_DESCRIBED)
    return described_type if described_type.partition("+")[0] == machine else machine
