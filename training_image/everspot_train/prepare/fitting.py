"""Chooses the wheels for this machine, if the cluster has machines of several architectures."""

import platform
from collections.abc import Sequence

from everspot_core.jobs.job import Wheel


def fitting(wheels: Sequence[Wheel]) -> list[Wheel]:
    """Return one wheel of each package: the one for this machine's architecture, or for any.

    The platform is the end of a wheel's name. If none fits, or if there is no choice, all wheels of the package are
    returned, and pip reports what is wrong with them.
    """
    packages: dict[str, list[Wheel]] = {}
    for wheel in wheels:
        packages.setdefault(wheel.name.partition("-")[0].lower().replace(".", "_"), []).append(wheel)
    chosen = []
    for some in packages.values():
        ranked = [(rank, wheel) for wheel in some if (rank := _rank(wheel)) is not None]
        chosen += [min(ranked, key=lambda pair: pair[0])[1]] if ranked and len(some) > 1 else some
    return chosen


def _rank(wheel: Wheel) -> int | None:
    """Return how well a wheel fits, 0 being best; None: not at all."""
    platforms = wheel.name.removesuffix(".whl").rpartition("-")[2].split(".")
    if any(name.endswith(f"_{platform.machine()}") for name in platforms):
        return 0
    return 1 if "any" in platforms else None
