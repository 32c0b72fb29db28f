"""Chooses the free instances for a gang: all of one type, in one zone and one market if possible."""

from collections.abc import Iterable, Sequence

from everspot_core.jobs.records import InstanceRecord, Market
from everspot_core.schedule.view import InstanceView


def pick(members: Sequence[InstanceView], nodes: int, prefer: Market, unstable: frozenset[str]) -> list[InstanceView]:
    """Return `nodes` of `members`, all of one type, or nothing."""
    best: tuple[tuple[int, int, int, int, tuple[str, ...]], list[InstanceView]] | None = None
    for candidates in _near(members):
        if len(candidates) < nodes:
            continue
        sizes = _zone_sizes(candidates)
        order = sorted(candidates, key=lambda i: _order(i, prefer, unstable, sizes))
        gang = order[:nodes]
        key = _merit(gang, prefer, unstable)
        if best is None or key < best[0]:
            best = key, gang
    return best[1] if best is not None else []


def instance_record(instance: InstanceView) -> InstanceRecord:
    """Return the record of a free instance, which always has one."""
    assert instance.record is not None  # noqa: S101 - a free instance has one
    return instance.record


def _near(members: Sequence[InstanceView]) -> Iterable[list[InstanceView]]:
    """Return the sets to choose from: those of one zone and market, of one zone, of one market, and all."""
    sets: dict[tuple[str, str], list[InstanceView]] = {}
    for instance in members:
        record = instance_record(instance)
        zone, market = record.zone, record.market.value
        for name in ((zone, market), (zone, ""), ("", market), ("", "")):
            sets.setdefault(name, []).append(instance)
    return sets.values()


def _zone_sizes(members: Iterable[InstanceView]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for instance in members:
        zone = instance_record(instance).zone
        sizes[zone] = sizes.get(zone, 0) + 1
    return sizes


def _order(
    instance: InstanceView, prefer: Market, unstable: frozenset[str], sizes: dict[str, int]
) -> tuple[bool, int, str, bool, str]:
    record = instance_record(instance)
    return (
        instance.instance_id in unstable,
        -sizes[record.zone],
        record.zone,
        record.market is not prefer,
        instance.instance_id,
    )


def _merit(
    gang: list[InstanceView], prefer: Market, unstable: frozenset[str]
) -> tuple[int, int, int, int, tuple[str, ...]]:
    records = [instance_record(i) for i in gang]
    return (
        sum(i.instance_id in unstable for i in gang),
        len({r.zone for r in records}),
        len({r.market for r in records}),
        sum(r.market is not prefer for r in records),
        tuple(i.instance_id for i in gang),
    )
