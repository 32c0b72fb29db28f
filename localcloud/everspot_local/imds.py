"""Stands in for the metadata service."""

from everspot_local.world import World


class MetadataServices:
    """The metadata services of all instances."""

    def __init__(self, world: World) -> None:
        self._world = world

    def close(self, instance_id: str) -> None:
        """An instance's service ends with it."""

    def close_all(self) -> None:
        """End all."""
