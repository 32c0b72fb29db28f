"""Nodes on the bill: where an instance is a pod, its machine is billed in its place.

The ledger has the launch and the end of each node, and of each pod with the name of its node. A node costs money from
its launch until it is gone, so its boot, its idle time and its drain are on the bill. A pod whose node is not in the
ledger is on a machine that others use, and is billed by its own share of that machine.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from everspot_core.costs.ledger import EndRecord, LaunchRecord
from everspot_core.costs.occupancy import Tenure

EMPTIED = timedelta(minutes=5)
"""An empty node is ended after half a minute, and the time that the cloud takes for it."""


@dataclass(frozen=True, slots=True)
class PodSpan:
    """A pod on a node, from its start to its end, or to the moment of the bill."""

    name: str
    start: datetime
    end: datetime


def is_billed(launch: LaunchRecord, launches: Mapping[str, LaunchRecord]) -> bool:
    """Return whether an instance is billed itself. A pod is not, if the ledger has its node."""
    return not launch.node or launch.node not in launches


def billed_record(launch: LaunchRecord, launches: Mapping[str, LaunchRecord]) -> LaunchRecord:
    """Return the record that is billed for an instance: its node's if the ledger has it, otherwise its own."""
    return launches.get(launch.node, launch) if launch.node else launch


def pods_by_node(launches: Iterable[LaunchRecord]) -> dict[str, list[str]]:
    """Return the names of the pods by their node."""
    pods: dict[str, list[str]] = {}
    for launch in launches:
        if launch.node:
            pods.setdefault(launch.node, []).append(launch.instance_id)
    return pods


def list_emptied(
    launches: Mapping[str, LaunchRecord], ends: Mapping[str, EndRecord], now: datetime
) -> list[LaunchRecord]:
    """Return the running nodes whose last agent ended some time ago: something else keeps them, and they are paid for.
    The oldest comes first."""
    emptied = []
    for node, pods in pods_by_node(launches.values()).items():
        machine = launches.get(node)
        if machine is None or node in ends or any(pod not in ends for pod in pods):
            continue
        if now - max(ends[pod].ended_at for pod in pods) > EMPTIED:
            emptied.append(machine)
    return sorted(emptied, key=lambda machine: (machine.launched_at, machine.instance_id))


def pod_spans(
    pods: Iterable[str], launches: Mapping[str, LaunchRecord], ends: Mapping[str, EndRecord], as_of: datetime
) -> tuple[PodSpan, ...]:
    """Return the spans of pods, in order."""
    spans = (
        PodSpan(name, launches[name].launched_at, min(ends[name].ended_at, as_of) if name in ends else as_of)
        for name in pods
        if launches[name].launched_at < as_of
    )
    return tuple(sorted(spans, key=lambda span: (span.start, span.name)))


def tenures_by_machine(
    claims: Mapping[str, Sequence[Tenure]], launches: Mapping[str, LaunchRecord], ends: Mapping[str, EndRecord]
) -> dict[str, list[Tenure]]:
    """Return the claims on instances by the machine that is billed for them. A claim on a pod ends with the pod."""
    by_machine: dict[str, list[Tenure]] = {}
    for name, tenures in claims.items():
        pod = launches.get(name)
        machine = billed_record(pod, launches).instance_id if pod is not None else name
        if pod is not None and machine != name:
            tenures = _within(tenures, pod, ends.get(name))
        by_machine.setdefault(machine, []).extend(tenures)
    return by_machine


def _within(tenures: Iterable[Tenure], pod: LaunchRecord, ended: EndRecord | None) -> list[Tenure]:
    cut = [
        replace(
            tenure,
            start=max(tenure.start, pod.launched_at),
            end=min(tenure.end, ended.ended_at) if ended is not None else tenure.end,
        )
        for tenure in tenures
    ]
    return [tenure for tenure in cut if tenure.start < tenure.end]
