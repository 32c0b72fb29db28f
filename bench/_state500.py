"""A training state of 500 MB on a folder store, and the loop that is measured on it.

Run as a script it is the training process of one measurement: `python -m bench._state500`.
"""

import json
import os
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

MEGABYTES = 500
ROUNDS = 5


def print_ratio(name: str, measured: list[float], floor: list[float], words: str) -> None:
    """Print the figure: the median ratio of the two, round by round. `words`: a note in which {ours} and {floor} stand
    for the median seconds of each."""
    ratio = statistics.median(a / b for a, b in zip(measured, floor, strict=True))
    seconds = words.format(ours=f"{statistics.median(measured):.2f} s", floor=f"{statistics.median(floor):.2f} s")
    note = f"{MEGABYTES} MB, median of {ROUNDS}: {seconds}"
    print(
        json.dumps({"name": name, "value": round(ratio, 3), "limit": None, "unit": "ratio", "note": note}), flush=True
    )


def write_run(root: Path, store: Path, epoch: int) -> None:
    """A run directory as an agent lays it out, for one ownership of the job."""
    from everspot_core.job import JobSpec, JobSubmission
    from everspot_train.rundir import LeaseFile, RunContext, RunDir

    root.mkdir(parents=True)
    for bucket in ("control", "data"):
        (store / bucket).mkdir(parents=True, exist_ok=True)
    spec = JobSpec.model_validate({"name": "bench", "entrypoint": ["x"], "code": ".", "checkpoint": {"steps": 10**6}})
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
        )
    )
    rundir.write(LeaseFile(valid_until=time.monotonic() + 3600))


def environment(root: Path, **settings: str) -> dict[str, str]:
    """The environment of the training process."""
    return os.environ | {"EVERSPOT_RUN_DIR": str(root), "OMP_NUM_THREADS": "1"} | settings


def train() -> None:
    """Train: weights and the momentum of SGD are a half of the state each. FIRST_STEP names a file that is touched
    after the first step; NOTICE_AT the step after which this process asks itself to stop, as an agent would."""
    import torch
    from everspot_core.records import Reason
    from everspot_train.rundir import RunDir, StopRequest
    from everspot_train.trainer import BatchOrder, Run, TensorLoader

    notice_at = int(os.environ.get("NOTICE_AT", "0"))
    features = 4096
    rows = MEGABYTES * 1_000_000 // 2 // 4 // features
    with Run.open(seed=0, precision="fp32") as run:
        model = torch.nn.Linear(features, rows, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        run.track(model=model, optimizer=optimizer, loader=TensorLoader((torch.ones(8, features),), BatchOrder(8, 1)))
        for (x,) in run.batches(1000):
            run.step(model(x).square().mean())
            if first := os.environ.get("FIRST_STEP"):
                Path(first).write_text(repr(time.monotonic()))
                os._exit(0)  # the rest is not measured
            if run.steps_done == notice_at:
                Path(os.environ["NOTICED"]).write_text(repr(time.monotonic()))
                RunDir(Path(os.environ["EVERSPOT_RUN_DIR"])).write(StopRequest(reason=Reason.NOTICE))


if __name__ == "__main__":
    train()
