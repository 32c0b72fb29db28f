"""`goodput.ratio`: the steps of a job with ten interruptions ÷ the steps of the same job without any, in the same time.

Each interruption is a real one: notice, checkpoint of 0.8 GB, end of the process, start of the next one, resume. Their
cost is measured. The ratio is that of a job which is interrupted every five minutes, the launch of the next instance
left out. The losses must be the same to the last bit.
"""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from bench._state import environment, print_ratio, shared_memory, write_run

INTERRUPTIONS = 10
STEPS = 6
"""Optimizer steps between two interruptions here. What matters is only the cost of an interruption."""
SPACING = timedelta(minutes=5)
LIMIT = 0.97


def train(folder: Path, epoch: int, last_step: int) -> list[tuple[int, str, float]]:
    """Run the loop until a notice at `last_step`. Returns step, loss and monotonic time of each step."""
    run, record = folder / f"run-{epoch}", folder / f"steps-{epoch}"
    with shared_memory() as memory:
        write_run(run, folder / "store", epoch, memory)
        settings = {"NOTICE_AT": str(last_step), "NOTICED": str(folder / "noticed"), "RECORD": str(record)}
        subprocess.run([sys.executable, "-m", "bench._state"], check=True, env=environment(run, **settings))
    lines = [line.split() for line in record.read_text().splitlines()]
    return [(int(step), loss, float(moment)) for step, loss, moment in lines]


def costs(attempts: list[list[tuple[int, str, float]]], step_seconds: float) -> Iterator[float]:
    """Yield the seconds that each interruption has cost: from the last step before it to the first one after it."""
    for before, after in pairwise(attempts):
        yield after[0][2] - before[-1][2] - step_seconds


def main() -> int:
    """Print the figure. Returns 0 if it is within its limit."""
    with tempfile.TemporaryDirectory(prefix="everspot-bench-") as name:
        undisturbed = train(Path(name, "undisturbed"), 1, STEPS * (INTERRUPTIONS + 1))
        folder = Path(name, "interrupted")
        attempts = [train(folder, epoch, STEPS * epoch) for epoch in range(1, INTERRUPTIONS + 2)]
    losses = [(step, loss) for attempt in attempts for step, loss, _ in attempt]
    if losses != [(step, loss) for step, loss, _ in undisturbed]:
        raise RuntimeError("the losses of the interrupted job are not those of the undisturbed one")
    moments = [moment for _, _, moment in undisturbed]
    step_seconds = statistics.median(b - a for a, b in pairwise(moments))
    seconds = SPACING.total_seconds()
    ratios = [seconds / (seconds + cost) for cost in costs(attempts, step_seconds)]
    cost = statistics.median(costs(attempts, step_seconds))
    note = f"{cost:.2f} s for each of {INTERRUPTIONS} interruptions, one every 5 minutes; {len(losses)} equal losses"
    return int(not print_ratio("goodput.ratio", ratios, LIMIT, note, at_least=True))


if __name__ == "__main__":
    raise SystemExit(main())
