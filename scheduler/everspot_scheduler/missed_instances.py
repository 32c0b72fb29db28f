"""Writes ledger entries for instances that ended before any scheduler described them.

Such an instance has left one of two traces. If its agent reported, the heartbeats say from when on it ran, and until
when. If it never reported, only the answer to its launch says that it existed. Then nobody knows how long it cost
money, unless the cloud reports its end. Without such a report the end is written with the source UNKNOWN, at the moment
of the launch, and the bill names it. Otherwise the instance would look as if it had cost nothing.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from everspot_core.clock import Clock
from everspot_core.costs.ledger import UNKNOWN, EndRecord, LaunchRecord
from everspot_core.jobs.records import InstanceRecord, Role
from everspot_store import Versioned

from everspot_scheduler.cloud_facts import Facts
from everspot_scheduler.elastic.intents import Place
from everspot_scheduler.ledger import Ledger

NEVER_TOLD = timedelta(hours=1)
"""Market time after a launch within which a cloud would have described the instance. Clouds describe an ended instance
for about an hour."""
LATELY = timedelta(minutes=1)
"""Real time for which an instance's absence from the cloud's description counts."""


def note_unseen(
    ledger: Ledger,
    clock: Clock,
    facts: Facts,
    beats: Mapping[str, Versioned[InstanceRecord]],
    launched: Mapping[str, Place],
) -> None:
    """Write the launches of instances that were never described, and the ends of instances that never reported.
    `beats`: the agents' heartbeats; `launched`: the instances by the answers to launches."""
    unseen = (beats.keys() | launched.keys()) - ledger.launches.keys() - facts.described.keys()
    for name in sorted(unseen):
        heartbeat, place = beats.get(name), launched.get(name)
        if heartbeat is not None:
            if name in facts.ends or ledger.is_forgotten(name, heartbeat.etag, facts):  # its end is noted like others'
                _write(ledger, _launch_from_heartbeat(heartbeat.value, place, clock.now()))
        elif place is not None and (end := _end(name, place, clock, facts)) is not None:
            _write(ledger, _launch_from_intent(name, place, end.ended_at))
            ledger.write_end(name, end.ended_at, interrupted=end.interrupted, source=end.source)


def _end(name: str, place: Place, clock: Clock, facts: Facts) -> EndRecord | None:
    """Return the end of an instance that never reported; None while it may still come."""
    if (cloud_end := facts.ends.get(name)) is not None:
        return EndRecord(
            instance_id=name, ended_at=cloud_end.ended_at, interrupted=cloud_end.interrupted, source="describe"
        )
    if name in facts.ended_at:
        return EndRecord(instance_id=name, ended_at=facts.ended_at[name], interrupted=False, source="event")
    described_at, now = facts.described_at, clock.now()
    if described_at is None or clock.monotonic() - described_at > LATELY or now - place.settled_at < NEVER_TOLD:
        return None
    return EndRecord(instance_id=name, ended_at=place.settled_at, interrupted=False, source=UNKNOWN)


def _write(ledger: Ledger, launch: LaunchRecord) -> None:
    ledger.write_launch(launch)
    ledger.note_catalogue_price(launch)


def _launch_from_heartbeat(heartbeat: InstanceRecord, place: Place | None, now: datetime) -> LaunchRecord:
    """`now`: no launch is later, whatever the instance's clock says."""
    booted_at = min(heartbeat.booted_at, now)
    fields = {key: getattr(heartbeat, key) for key in ("instance_id", "instance_type", "zone", "market", "role")}
    if place is None:
        return LaunchRecord(**fields, launched_at=booted_at)
    return LaunchRecord(**fields, **_machine(place), launched_at=_launched_at(place, booted_at))


def _launch_from_intent(name: str, place: Place, ended_at: datetime) -> LaunchRecord:
    pool = place.pool
    return LaunchRecord(
        instance_id=name,
        instance_type=pool.instance_type,
        zone=pool.zone,
        market=pool.market,
        role=Role.AGENT,
        launched_at=_launched_at(place, ended_at),
        **_machine(place),
    )


def _machine(place: Place) -> dict[str, Any]:
    """Return the machine of a pod, in whose place the machine is billed: otherwise the bill would have both."""
    return {"node": place.node, "node_share": place.node_share}


def _launched_at(place: Place, ran_at: datetime) -> datetime:
    """Return when the instance began to cost money: at the answer to its launch; at the request if it ran before the
    answer."""
    return place.settled_at if place.settled_at <= ran_at else min(place.made_at, ran_at)
