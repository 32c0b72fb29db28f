"""The checks of `everspot doctor`, each with whose matter it is."""

from everspot_clouds.base import Check, Verdict

__all__ = ["Check", "Verdict"]
