"""Reads the records that the trainer wrote during a rehearsal. See `everspot_train.trainer.rehearsal`."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Boundary:
    """The state between two steps, and the inputs of the step before it.

    Attributes:
        step: optimizer steps done.
        first: whether the process has made no step yet: its state comes from the script or from a checkpoint.
        end: whether the program leaves its `with` block, so that code after the loop may have changed the state.
    """

    step: int
    first: bool = False
    end: bool = False
    batches: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    metrics: dict[str, str] = field(default_factory=dict)
    state: dict[str, str] = field(default_factory=dict)
    random: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    evaluated: bool = False


@dataclass(frozen=True)
class Record:
    """The record of one rank in one attempt."""

    rank: int
    boundaries: list[Boundary] = field(default_factory=list)
    epoch_ends: list[int] = field(default_factory=list)
    per_epoch: int | None = None
    loader: dict[str, Any] = field(default_factory=dict)

    def at(self, step: int, *, end: bool = False) -> Boundary | None:
        """Return the boundary after `step` steps; the last one if there are several."""
        return next((b for b in reversed(self.boundaries) if b.step == step and b.end == end), None)

    @property
    def last(self) -> Boundary | None:
        """The last boundary, the program's end included."""
        return self.boundaries[-1] if self.boundaries else None

    @property
    def steps(self) -> int:
        """The last step."""
        return max((boundary.step for boundary in self.boundaries), default=0)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a record so far. A line that is still being written is left out."""
    try:
        whole = path.read_bytes().rpartition(b"\n")[0]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in whole.splitlines()]


def read_records(path: Path) -> dict[int, Record]:
    """Return the records of all ranks of one attempt; empty if the program does not use the trainer library."""
    records = {0: _record(0, path)}
    for other in path.parent.glob(f"{path.name}.*"):
        rank = other.name.removeprefix(f"{path.name}.")
        if rank.isdigit():
            records[int(rank)] = _record(int(rank), other)
    return dict(sorted(records.items())) if path.exists() else {}


def _record(rank: int, path: Path) -> Record:
    boundaries: list[Boundary] = []
    ends: list[int] = []
    plan: dict[str, Any] = {}
    for line in read_lines(path):
        if line["event"] == "plan":
            plan = plan or line
        elif line["event"] == "epoch":
            ends.append(line["step"])
        elif line["event"] in ("boundary", "end"):
            fields = {name: line[name] for name in Boundary.__dataclass_fields__ if name in line}
            _add(boundaries, Boundary(**fields, end=line["event"] == "end"))
    return Record(rank, boundaries, ends, plan.get("per_epoch"), plan.get("loader", {}))


def _add(boundaries: list[Boundary], boundary: Boundary) -> None:
    """Add a boundary. Two consecutive boundaries of one step, as between two loops, are merged."""
    before = boundaries[-1] if boundaries else None
    if before is None or before.step != boundary.step or boundary.end:
        boundaries.append(boundary)
        return
    boundaries[-1] = replace(
        boundary,
        first=before.first,
        batches=before.batches + boundary.batches,
        losses=before.losses + boundary.losses,
        metrics=before.metrics | boundary.metrics,
        evaluated=before.evaluated or boundary.evaluated,
    )
