"""How much longer a step takes while something else runs beside it, and what that costs in all.

Steps without it come before and after it, so that a drift of the machine's speed cancels. A round in which other
programs used the machine is repeated.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench._state import print_ratio

_ROUNDS, _MOST_ROUNDS = 15, 20
_LEAST_ROUNDS = 5
_QUIET_STEPS = 4
_MOST_OTHER_LOAD = 0.1
"""The processors that other programs may use during a round."""
_KERNEL_TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one step. `processor`: of the loop's thread."""

    wall: float
    processor: float


@dataclass(frozen=True, slots=True)
class Rise:
    """One comparison of busy steps with quiet ones.

    Attributes:
        wall: a busy step's time ÷ a quiet step's.
        processor: the same for the processor time of the loop's thread.
        lost_seconds: wall time that all busy steps took longer.
        other_load: processors that other programs used meanwhile.
    """

    wall: float
    processor: float
    lost_seconds: float
    other_load: float


Work = Callable[[], Iterator[None]]
"""A function that returns an iterator. Its first item comes when all is ready, the others while the work is done."""


def measure_rises(works: Mapping[str, Work], step: Callable[[], StepTime]) -> dict[str, list[Rise]]:
    """Return the rises for each kind of work, in turn."""
    rises: dict[str, list[Rise]] = {name: [] for name in works}
    for number in range(_MOST_ROUNDS):
        undisturbed = min(len(_undisturbed(of_work)) for of_work in rises.values())
        if undisturbed >= _ROUNDS or (number == _LEAST_ROUNDS and not undisturbed):  # on a busy machine none will be
            break
        for name, work in works.items():
            rises[name].append(_measure_rise(work, step))
    return rises


def print_rise(name: str, rises: Sequence[Rise], limit: float | None, note: str) -> bool:
    """Print the median rise, and the milliseconds that are lost in all. Return whether the rise is within the limit.
    Where other programs left too few rounds undisturbed, the rise is that of processor time."""
    quiet = _undisturbed(rises)
    is_wall = len(quiet) >= _LEAST_ROUNDS
    used = quiet if is_wall else rises
    lost = 1000 * statistics.median(rise.lost_seconds for rise in used)
    processor = statistics.median(rise.processor for rise in used)
    load = statistics.median(rise.other_load for rise in rises)
    clock = f"wall time, {processor:.3f} of processor time" if is_wall else "processor time, since the machine is busy"
    note = f"{note}; {clock}; {lost:.0f} ms in all; other programs used {load:.2f} CPUs"
    return print_ratio(name, [rise.wall if is_wall else rise.processor for rise in used], limit, note)


def _undisturbed(rises: Sequence[Rise]) -> list[Rise]:
    return [rise for rise in rises if rise.other_load <= _MOST_OTHER_LOAD]


def _measure_rise(work: Work, step: Callable[[], StepTime]) -> Rise:
    running = work()
    next(running)
    before = _read_processor_seconds()
    began = time.perf_counter()
    quiet = [[step() for _ in range(_QUIET_STEPS)]]
    busy = [step() for _ in running]
    quiet.append([step() for _ in range(_QUIET_STEPS)])
    elapsed = time.perf_counter() - began
    all_used, own_used = (after - start for after, start in zip(_read_processor_seconds(), before, strict=True))
    wall = statistics.mean(statistics.median(s.wall for s in steps) for steps in quiet)
    processor = statistics.mean(statistics.median(s.processor for s in steps) for steps in quiet)
    return Rise(
        wall=statistics.median(s.wall for s in busy) / wall,
        processor=statistics.median(s.processor for s in busy) / processor,
        lost_seconds=sum(s.wall - wall for s in busy),
        other_load=max(0.0, all_used - own_used) / elapsed,
    )


def _read_processor_seconds() -> tuple[float, float]:
    """Return the processor seconds of the machine so far, and of this process and its children."""
    import psutil  # type: ignore[import-untyped]

    ticks = map(int, Path("/proc/stat").read_text().split()[1:9])
    user, nice, system, _, _, _, _, steal = ticks  # interrupts are those of the writes, too
    machine = (user + nice + system + steal) * _KERNEL_TICK
    own = sum(os.times()[:4])  # of this process, and of its children that have ended
    for child in psutil.Process().children(recursive=True):
        times = child.cpu_times()
        own += times.user + times.system
    return machine, own
