"""A training state of 0.8 GB on a folder store: the loop that is measured on it, and how figures are printed.

Run as a script it is the training process of one measurement: `python -m bench._state`.
"""

import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

LAYERS, WIDTH = 16, 1024
ROUNDS = 5


def print_ratio(name: str, ratios: Sequence[float], limit: float | None, note: str, *, at_least: bool = False) -> bool:
    """Print the median of the ratios beside the limit. Returns whether it is within it.

    `at_least`: the limit is the least value; otherwise it is the largest.
    """
    value = statistics.median(ratios)
    shown = ", ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
    figure = {"name": name, "value": round(value, 3), "limit": limit, "unit": "ratio", "note": f"{note} ({shown})"}
    print(json.dumps(figure), flush=True)
    return limit is None or (value >= limit if at_least else value <= limit)


def print_figures(figures: Iterable[dict[str, Any]]) -> bool:
    """Print figures as JSON lines. Returns whether all are within their `limit`, and their least value `at_least`."""
    within = True
    for figure in figures:
        print(json.dumps(figure), flush=True)
        within &= figure.get("at_least", -math.inf) <= figure["value"] <= figure.get("limit", math.inf)
    return within


@contextmanager
def shared_memory() -> Iterator[Path]:
    """A folder in memory, as an agent gives one to a job. It is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="everspot-bench-", dir="/dev/shm") as name:
        yield Path(name)


def write_run(root: Path, store: Path, epoch: int, memory: Path | None = None, **policy: Any) -> None:
    """A run directory as an agent lays it out, for one ownership of the job. `memory`: the folder in memory."""
    from everspot_core.jobs.job import JobSpec, JobSubmission
    from everspot_train.rundir import LeaseFile, RunContext, RunDir

    root.mkdir(parents=True)
    for bucket in ("control", "data"):
        (store / bucket).mkdir(parents=True, exist_ok=True)
    checkpoint = policy or {"steps": 10**6}
    spec = JobSpec.model_validate({"name": "bench", "entrypoint": ["x"], "code": ".", "checkpoint": checkpoint})
    rundir = RunDir(root)
    rundir.write(
        RunContext(
            job_id="bench",
            epoch=epoch,
            instance_id=f"i-{epoch}",
            cloud="folder",
            control_url=f"file://{store}/control",
            data_url=f"file://{store}/data",
            submission=JobSubmission(job_id="bench", spec=spec, submitted_at=datetime.now(UTC)),
            scratch_dir=str(root / "scratch"),
            memory_dir=str(memory) if memory is not None else None,
        )
    )
    rundir.write(LeaseFile(valid_until=time.monotonic() + 3600))


def environment(root: Path, **settings: str) -> dict[str, str]:
    """The environment of the training process: one thread computes, so that a core is to spare."""
    return os.environ | {"EVERSPOT_RUN_DIR": str(root), "OMP_NUM_THREADS": "1"} | settings


def make_model() -> Any:
    """A model of the shape of a small GPT: many tensors, 67 million parameters."""
    import torch

    layers = [
        torch.nn.Sequential(
            torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Linear(2 * WIDTH, WIDTH)
        )
        for _ in range(LAYERS)
    ]
    return torch.nn.Sequential(*layers)


def open_run(steps: int) -> Any:
    """Return a run, the model, its AdamW, and the batches of a loop. OVERLAP_COPIES=1: its checkpoints are copied while
    the next step runs, also on a CPU."""
    import torch
    from everspot_train.trainer import BatchOrder, Run, TensorLoader

    run = Run.open(seed=0, precision="fp32", overlap_copies=os.environ.get("OVERLAP_COPIES") == "1" or None)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = torch.ones(8, WIDTH)
    run.track(model=model, optimizer=optimizer, loader=TensorLoader((data,), BatchOrder(8, 1)))
    return run, model, optimizer, run.batches(steps)


def train() -> None:
    """Train. FIRST_STEP names a file that is written after the first step; NOTICE_AT is the step after which this
    process asks itself to stop, as an agent would; RECORD names a file for step, loss and time of each step."""
    from everspot_core.jobs.records import Reason
    from everspot_train.rundir import RunDir, StopRequest

    notice_at = int(os.environ.get("NOTICE_AT", "0"))
    record = os.environ.get("RECORD")
    run, model, _, batches = open_run(1000)
    with run:
        for (x,) in batches:
            run.step(model(x).square().mean())
            if record is not None:
                with Path(record).open("a") as file:
                    file.write(f"{run.steps_done} {run.last_loss.hex()} {time.monotonic()!r}\n")
            if first := os.environ.get("FIRST_STEP"):
                Path(first).write_text(repr(time.monotonic()))
                os._exit(0)  # the rest is not measured
            if run.steps_done == notice_at:
                Path(os.environ["NOTICED"]).write_text(repr(time.monotonic()))
                RunDir(Path(os.environ["EVERSPOT_RUN_DIR"])).write(StopRequest(reason=Reason.NOTICE))


if __name__ == "__main__":
    train()
