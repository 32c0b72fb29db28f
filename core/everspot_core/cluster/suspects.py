"""Finds out which images, pools and machines are to blame for useless instances.

One useless instance is bad luck. If all instances of an image are useless, the image is at fault."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from everspot_core.costs.ledger import FaultKind, FaultRecord, LaunchRecord
from everspot_core.jobs.records import Role

WINDOW = timedelta(days=1)
"""Market time for which a launch is counted, and for which its fault counts against image and pool."""
SEVERAL = 2
"""Number of instances with the same fault from which on it is more than bad luck."""

FAULT_WORDS = {
    FaultKind.NEVER_REPORTED: "never reported",
    FaultKind.GPUS: "had fewer GPUs than their type has, or broken ones",
    FaultKind.DISK: "had too little room on their disk",
    FaultKind.AGENT: "had an agent that failed again and again",
    FaultKind.JOBS: "failed jobs that did well elsewhere",
}
"""What several instances with this fault did, as the subject of a sentence."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A sentence about an image, pool or machine that may be at fault. `grave`: everything that was launched from it
    was useless."""

    words: str
    grave: bool


def find_suspects(faults: Iterable[FaultRecord], launches: Mapping[str, LaunchRecord], now: datetime) -> list[Suspect]:
    """Return the suspects by the faults of the last WINDOW, the gravest first: images, then pools, then machines."""
    lately = sorted((f for f in faults if now - f.at < WINDOW), key=lambda f: (f.at, f.instance_id))
    suspects_list, explained = [], set[str]()
    silent = [f for f in lately if f.kind is FaultKind.NEVER_REPORTED]
    for image in sorted({f.image for f in silent if f.image}):
        own = {f.instance_id for f in silent if f.image == image}
        count = len(own | {n for n, launch in launches.items() if launch.image == image and _counts(launch, now)})
        if len(own) >= SEVERAL and len(own) == count:
            words = (
                f"{len(own)} of {count} instances of image {image} never reported: the image or its egress is at fault"
            )
            suspects_list.append(Suspect(words, True))
            explained |= own
    for kind in FaultKind:
        unexplained = [f for f in lately if f.kind is kind and f.instance_id not in explained]
        for pool in sorted({(f.instance_type, f.zone) for f in unexplained}):
            own = {f.instance_id for f in unexplained if (f.instance_type, f.zone) == pool}
            launched_there = {n for n, x in launches.items() if (x.instance_type, x.zone) == pool and _counts(x, now)}
            count, name = len(own | launched_there), f"{pool[0]} in {pool[1]}"
            if len(own) >= SEVERAL:
                suspects_list.append(
                    Suspect(f"{len(own)} of {count} instances of {name} {FAULT_WORDS[kind]}", len(own) == count)
                )
                explained |= own
    alone = [f for f in lately if f.instance_id not in explained]
    suspects_list += [
        Suspect(f"{f.instance_id} ({f.instance_type}, {f.zone}): {f.detail or f.kind.value}", False) for f in alone
    ]
    return sorted(suspects_list, key=lambda suspect: not suspect.grave)


def _counts(launch: LaunchRecord, now: datetime) -> bool:
    return launch.role is Role.AGENT and now - launch.launched_at < WINDOW
