"""Finds the first difference between two runs, as a pure function of their records."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from everspot_train.rehearse.library import Played, RehearsedAttempt
from everspot_train.rehearse.records import Boundary, Record

_SECOND_RANK = ("metric", "random")
"""Kinds of differences without an effect on the training. They count only if nothing else differs."""


@dataclass(frozen=True)
class FirstDifference:
    """One difference.

    Attributes:
        first: whether it existed before the first step of its attempt, so that it comes from the restored state.
        end: whether it was found after the loop.
        previous: the boundary before it in its attempt, or None.
        reference: the boundary of the undisturbed run at this step.
        boundary: the boundary at which it was found.
        start: the first boundary of its attempt.
        start_reference: the boundary of the undisturbed run where the attempt began.
    """

    kind: str
    name: str
    step: int
    rank: int
    expected: str
    actual: str
    first: bool = False
    end: bool = False
    reference: Boundary | None = None
    boundary: Boundary | None = None
    previous: Boundary | None = None
    start: Boundary | None = None
    start_reference: Boundary | None = None


@dataclass
class UnstableEntries:
    """The differences between two undisturbed runs: the first step of each difference, by rank, kind and name."""

    since: dict[tuple[int, str, str], int] = field(default_factory=dict)

    def has(self, rank: int, kind: str, name: str, step: int) -> bool:
        """Return whether an entry must not be compared at this step."""
        return self.since.get((rank, kind, name), step + 1) <= step

    def note(self, rank: int, kind: str, name: str, step: int) -> None:
        """Record a difference."""
        key = (rank, kind, name)
        self.since[key] = min(step, self.since.get(key, step))

    @property
    def names(self) -> list[str]:
        """The kinds and names of the differences, without variables, which are too many."""
        return sorted({f"{kind} {name}".strip() for _, kind, name in self.since if kind != "variable"})


def entry_kind(name: str) -> str:
    """Return the kind of an entry of a boundary's state."""
    head = name.partition("/")[0]
    if name.startswith("run/metrics/"):  # a rate of samples is no state of the training
        return "metric"
    kinds = {"model": "weight", "buffer": "buffer", "optimizer": "optimizer", "frozen": "frozen"}
    return kinds.get(head, "state")


def list_entries(boundary: Boundary) -> Iterator[tuple[str, str, str]]:
    """Yield kind, name and text of all compared entries of a boundary, in the order of cause and effect."""
    for place, text in enumerate(boundary.batches):
        yield "batch", str(place) if place else "", text
    for place, text in enumerate(boundary.losses):
        yield "loss", str(place) if place else "", text
    states = sorted(boundary.state.items(), key=lambda item: (_entry_order(item[0]), item[0]))
    yield from ((entry_kind(name), name, text) for name, text in states)
    yield from (("metric", name, text) for name, text in sorted(boundary.metrics.items()))
    yield from (("random", name, text) for name, text in sorted(boundary.random.items()))


def _entry_order(name: str) -> int:
    """Return the place of an entry in the order of cause and effect: a learning rate comes before the weights."""
    if name.startswith("optimizer/group "):
        return 0
    return ("frozen", "buffer", "weight", "optimizer", "state", "metric").index(entry_kind(name))


def unstable_between(first_run: Played, second_run: Played) -> tuple[UnstableEntries, FirstDifference | None]:
    """Compare two undisturbed runs. Return all differences, and the first difference that affects the training."""
    unstable, first = UnstableEntries(), None
    for rank, record in sorted(first_run.attempts[0].records.items()):
        twin = second_run.attempts[0].records.get(rank)
        for boundary in record.boundaries:
            reference = boundary
            opposite = twin.at(boundary.step, end=boundary.end) if twin is not None else None
            for difference in differences(reference, opposite, rank, UnstableEntries()):
                unstable.note(rank, difference.kind, difference.name, boundary.step)
                if difference.kind not in _SECOND_RANK and (first is None or difference.step < first.step):
                    first = difference
            for name, text in boundary.variables.items():
                if opposite is None or opposite.variables.get(name) != text:
                    unstable.note(rank, "variable", name, 0)
            for name in opposite.variables if opposite is not None else ():
                if name not in boundary.variables:
                    unstable.note(rank, "variable", name, 0)
    return unstable, first


def differences(
    reference: Boundary, boundary: Boundary | None, rank: int, unstable: UnstableEntries
) -> Iterator[FirstDifference]:
    """Yield all differences between two boundaries of the same step, in the order of cause and effect."""
    if boundary is None:
        yield FirstDifference(
            "step", "", reference.step, rank, f"step {reference.step}", "never reached", end=reference.end
        )
        return
    made_here = not (boundary.first or reference.first)
    expected = {(kind, name): text for kind, name, text in list_entries(reference)}
    actual = {(kind, name): text for kind, name, text in list_entries(boundary)}
    for kind, name in [*actual, *(key for key in expected if key not in actual)]:
        if not made_here and kind in ("batch", "loss", "metric"):
            continue
        texts = expected.get((kind, name), "missing"), actual.get((kind, name), "missing")
        if texts[0] != texts[1] and not unstable.has(rank, kind, name, reference.step):
            yield FirstDifference(
                kind, name, reference.step, rank, *texts, boundary.first, boundary.end, reference, boundary
            )


def first_difference(undisturbed: Played, interrupted: Played, unstable: UnstableEntries) -> FirstDifference | None:
    """Return the first difference of an interrupted run, the earliest in its own order of events."""
    lesser: FirstDifference | None = None
    for attempt in interrupted.attempts:
        for rank, record in sorted(attempt.records.items()):
            reference = undisturbed.attempts[0].records.get(rank)
            if reference is None:
                continue
            start = _wrong_start(attempt, record, rank)
            if start is not None:
                return start
            for difference in _in_attempt(reference, record, rank, unstable):
                if difference.kind not in _SECOND_RANK:
                    return difference
                if difference.kind == "metric":
                    lesser = lesser or difference
    return lesser or _short_of_steps(undisturbed, interrupted)


def _in_attempt(reference: Record, record: Record, rank: int, unstable: UnstableEntries) -> Iterator[FirstDifference]:
    previous: Boundary | None = None
    start = record.boundaries[0] if record.boundaries else None
    for boundary in record.boundaries:
        twin = reference.at(boundary.step, end=boundary.end)
        if twin is not None:
            begun = reference.at(start.step) if start is not None else None
            for difference in differences(twin, boundary, rank, unstable):
                yield FirstDifference(
                    **{**vars(difference), "previous": previous, "start": start, "start_reference": begun}
                )
        previous = boundary


def _wrong_start(attempt: RehearsedAttempt, record: Record, rank: int) -> FirstDifference | None:
    start = record.boundaries[0] if record.boundaries else None
    if start is None or start.step == attempt.expected_step:
        return None
    expected, actual = f"from step {attempt.expected_step}", f"from step {start.step}"
    return FirstDifference("step", "", attempt.expected_step, rank, expected, actual, first=True)


def _short_of_steps(undisturbed: Played, interrupted: Played) -> FirstDifference | None:
    last = interrupted.attempts[-1]
    for rank, reference in sorted(undisturbed.attempts[0].records.items()):
        record = last.records.get(rank)
        if record is None or record.steps != reference.steps:
            steps = record.steps if record is not None else 0
            return FirstDifference(
                "step", "", steps, rank, f"ends after step {reference.steps}", f"ends after step {steps}"
            )
    return None


def unrestored(difference: FirstDifference, unstable: UnstableEntries) -> list[tuple[str, str, str]]:
    """Return the variables that the attempt of a difference did not restore: name, expected and actual text.

    They differ before the attempt's first step, so they are no consequence of the difference. If there are none,
    generators that differ after the step count.
    """
    names = _differing(difference.start_reference, difference.start, difference.rank, unstable)
    if not names and not difference.first:
        later = _differing(difference.reference, difference.boundary, difference.rank, unstable)
        names = [entry for entry in later if entry[1].startswith("generator|")]
    return names


def _differing(
    reference: Boundary | None, boundary: Boundary | None, rank: int, unstable: UnstableEntries
) -> list[tuple[str, str, str]]:
    if reference is None or boundary is None:
        return []
    return [
        (name, reference.variables[name], text)
        for name, text in boundary.variables.items()
        if name in reference.variables
        and reference.variables[name] != text
        and not unstable.has(rank, "variable", name, reference.step)
    ]


def changing(undisturbed: Played, rank: int) -> set[str]:
    """Return the names of the variables that have more than one value between the steps of an undisturbed run."""
    values: dict[str, set[str]] = {}
    record = undisturbed.attempts[0].records.get(rank)
    for boundary in record.boundaries if record is not None else ():
        for name, text in boundary.variables.items():
            values.setdefault(name, set()).add(text)
    return {name for name, texts in values.items() if len(texts) > 1}


def lost_variables(
    undisturbed: Played, interrupted: Played, unstable: UnstableEntries
) -> list[tuple[int, str, str, str]]:
    """Return the variables that change during training and differ after the first step of a resumed run: rank, name,
    expected and actual text. Without a difference in the training itself they are the script's lost variables."""
    lost: list[tuple[int, str, str, str]] = []
    for rank, record in sorted(interrupted.attempts[-1].records.items()):
        reference = undisturbed.attempts[0].records.get(rank)
        boundary = next((b for b in record.boundaries if not b.end and not b.first), None)
        if reference is None or boundary is None:
            continue
        moving = changing(undisturbed, rank)
        entries = _differing(reference.at(boundary.step), boundary, rank, unstable)
        lost += [(rank, name, expected, actual) for name, expected, actual in entries if name in moving]
    return lost


def weight_shapes(undisturbed: Played) -> set[str]:
    """Return dtype-free shapes of the model's tensors, such as `[8,20]`, without scalars."""
    record = undisturbed.attempts[0].records.get(0)
    last = record.last if record is not None else None
    texts = [text for name, text in last.state.items() if name.startswith("model/")] if last is not None else []
    return {parse_shape(text) for text in texts} - {"", "[]"}


def parse_shape(text: str) -> str:
    """Return the shape in the text of a tensor; empty for other values."""
    head, bracket, after_bracket = text.partition("[")
    return f"[{after_bracket.partition(']')[0]}]" if bracket and "|" not in head and "'" not in head else ""
