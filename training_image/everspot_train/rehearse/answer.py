"""The result of a rehearsal, as `everspot rehearse --json` prints it."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class RehearsalVerdict(StrEnum):
    """The result of a whole rehearsal, or of one place."""

    EXACT = "exact"
    DIFFERS = "differs"
    FAILED = "failed"
    NOT_REACHED = "not reached"


@dataclass(frozen=True)
class Difference:
    """The first thing that differs between the undisturbed and the interrupted run.

    Attributes:
        kind: `batch`, `loss`, `weight`, `buffer`, `optimizer`, `state`, `random`, `metric`, `variable`, `file`, `log`,
            `step` (resumed at another step than it should have) or `error`.
        name: of the weight, variable, file …; empty for a batch or a loss.
        step: the optimizer step after which it was found; None for files.
        rank: the process in which it was found.
        expected: the text of the value in the undisturbed run.
        actual: the text of the value in the interrupted run.
        cause: variables that were not restored, if they explain the difference.
        fix: what to do, in one or two sentences.
    """

    kind: str
    name: str
    step: int | None = None
    rank: int = 0
    expected: str = ""
    actual: str = ""
    cause: list[str] = field(default_factory=list)
    fix: str = ""


@dataclass(frozen=True)
class PlaceResult:
    """The result for one place of interruption. `message`: why it was not reached, or how the program failed."""

    place: str
    verdict: RehearsalVerdict
    step: int | None = None
    difference: Difference | None = None
    message: str = ""


@dataclass(frozen=True)
class Leftover:
    """A variable of the script that changes during training and is not restored, but has had no effect."""

    name: str
    expected: str
    actual: str
    fix: str


@dataclass(frozen=True)
class Answer:
    """The result of a rehearsal.

    Attributes:
        verdict: `exact`, `differs` or `failed`.
        library: whether the program uses the trainer library.
        steps: optimizer steps of each run; None without the library.
        processes: processes of each run.
        undisturbed: the first difference between two undisturbed runs; None if they are equal.
        places: the results by place.
        leftovers: variables that are not restored.
        ignored: the parts that were not compared, because two undisturbed runs differ in them.
        message: why the rehearsal failed.
        output: the end of the program's output, if it failed.
    """

    verdict: RehearsalVerdict
    library: bool = True
    steps: int | None = None
    processes: int = 1
    undisturbed: Difference | None = None
    places: list[PlaceResult] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    message: str = ""
    output: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return asdict(self)
