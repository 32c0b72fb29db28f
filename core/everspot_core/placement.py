"""What is asked of a cloud that scores its capacity: which types together, and for how many instances.

A score speaks of a set of types that may stand in for each other. The fewer the sets and the sizes that are asked
about, the fewer questions are new to the cloud, which may limit new ones.
"""

from collections import defaultdict
from collections.abc import Iterable

from everspot_core.catalogue import InstanceType

COUNT_AT_MOST = 64
"""More instances at once are not asked about: a score for more than is ever launched at once says nothing of it."""


def groups(types: Iterable[InstanceType]) -> list[tuple[str, ...]]:
    """The names of types that may stand in for each other, by their number of GPUs; each group and all of them sorted.

    What a job asks for decides which types it may really have. But its wishes are many, and a group for each would be a
    question of its own.
    """
    found: dict[int, set[str]] = defaultdict(set)
    for kind in types:
        found[kind.gpus].add(kind.name)
    return sorted(tuple(sorted(names)) for names in found.values())


def asked_count(wanted: int) -> int:
    """For how many instances to ask where so many are wanted: the next power of 4, from 1 to COUNT_AT_MOST."""
    count = 1
    while count < min(wanted, COUNT_AT_MOST):
        count *= 4
    return count
