"""Stands in for the machines themselves: the process tree of each instance.

First form: instances without processes.
"""

from typing import Any

from everspot_local.world import World


class Machines:
    """The processes of all instances."""

    def __init__(self, world: World) -> None:
        self._world = world

    def boot(self, instance: Any) -> None:
        """Start the image's boot command."""

    def stop(self, instance_id: str, *, hard: bool) -> bool:
        """Begin to end an instance's processes; False if it has none."""
        return False

    def kill(self, instance_id: str) -> None:
        """End what is left of an instance's processes."""

    def pid(self, instance_id: str) -> int | None:
        """Process id of the instance's first process."""
        return None

    def close(self) -> None:
        """End all."""
