"""How types are named: by the machine type, and for N1 by the GPUs that are attached to it, as in n1-standard-8+t4.

All other machine types with GPUs have them built in (Compute Engine documentation, "GPU machine types"). Only the
standard library: the metadata reader needs it.
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

_FAMILY = "n1-"
_NAME = re.compile(r"^(?P<machine>[a-z][a-z0-9-]*)(?:\+(?:(?P<count>[1-9]\d?)x)?(?P<gpu>[a-z0-9]+))?$")
_DESCRIBED = "Everspot "


@dataclass(frozen=True, slots=True)
class Machine:
    """A type in the API's words. `accelerator`: what is attached to it, `count` of them; empty for none."""

    machine: str
    accelerator: str = ""
    count: int = 0

    @property
    def attached(self) -> bool:
        """Whether its GPUs are attached, which only a request for this type alone can ask for."""
        return bool(self.accelerator)


def machine_of(instance_type: str) -> Machine:
    """A type's machine type and what is attached to it.

    Raises:
        ValueError: if it is no name of a type.
    """
    found = _NAME.match(instance_type)
    if found is None or (found["gpu"] and found["gpu"] not in ATTACHED):
        known = ", ".join(f"n1-standard-8+{gpu}" for gpu in ATTACHED)
        raise ValueError(f"{instance_type!r} is not a type such as g2-standard-4, {known} or n1-standard-16+2xt4")
    if not found["gpu"]:
        return Machine(found["machine"])
    return Machine(found["machine"], ATTACHED[found["gpu"]], int(found["count"] or 1))


def type_name(machine: str, accelerator: str = "", count: int = 0) -> str:
    """The name of a type. GPUs that are built in are described like attached ones by the API, and are no part of it."""
    if not machine.startswith(_FAMILY) or not accelerator:
        return machine
    gpu = next((short for short, name in ATTACHED.items() if name == accelerator), accelerator)
    return f"{machine}+{gpu}" if count == 1 else f"{machine}+{count}x{gpu}"


def description(instance_type: str) -> str:
    """What is written into an instance's description, so that its metadata tells what is attached to it."""
    return f"{_DESCRIBED}{instance_type}"


def described(text: str, machine: str) -> str:
    """The type that a description tells, if it is about this machine type; else the machine type."""
    told = text.strip().removeprefix(_DESCRIBED)
    return told if told.partition("+")[0] == machine else machine
