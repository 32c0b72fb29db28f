"""The checks of `everspot doctor`, each with the group that it belongs to."""

from everspot_clouds.base import Check, Verdict

__all__ = ["Check", "Verdict"]
