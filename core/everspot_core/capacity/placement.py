"""Chooses the questions to a cloud that scores its capacity: which types together, and for how many instances.

A score is about a set of types that can replace each other. A cloud may limit how many new questions it answers, so
there are few different sets and sizes.
"""

from collections import defaultdict
from collections.abc import Iterable

from everspot_core.capacity.catalogue import InstanceType

COUNT_AT_MOST = 64
"""The most instances of a question. A score for more instances than one launch has is useless."""


def groups(types: Iterable[InstanceType]) -> list[tuple[str, ...]]:
    """Return the names of types that can replace each other, by their number of GPUs; each group and all of them
    sorted.

    The types that a job may really have depend on its request. A group for each combination of requests would be too
    many questions.
    """
    names_by_gpus: dict[int, set[str]] = defaultdict(set)
    for kind in types:
        names_by_gpus[kind.gpus].add(kind.name)
    return sorted(tuple(sorted(names)) for names in names_by_gpus.values())


def request_count(desired: int) -> int:
    """Return the number of instances to ask about if `desired` are wanted: the next power of 4, from 1 to
    COUNT_AT_MOST."""
    count = 1
    while count < min(desired, COUNT_AT_MOST):
        count *= 4
    return count
