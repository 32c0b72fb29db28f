"""`measure.…`: the cost of measuring a running job: the agent's samples, and the trainer's timing of its steps.

The job is a real tree of 32 processes beside those of the machine. It is found through /proc, which costs more than a
control group. Samples follow each other without waiting. Processor time is that of the process, so a busy machine
changes it little. GPUs are read if the machine has any.
"""

import json
import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from everspot_store import ManualClock, Store
from everspot_train.agent.actions import JobKey
from everspot_train.agent.hardware import measure
from everspot_train.agent.process import JobLaunch, LocalLauncher
from everspot_train.agent.utilization.sampler import SAMPLE_EVERY, UtilizationSampler
from everspot_train.trainer.loop_timing import LoopTiming

PROCESSES, SAMPLES, STEPS = 32, 120, 200_000
SHARE_LIMIT = 0.01
STEP_SECONDS = 0.01
"""A short step, of a small model."""
TREE = """
import subprocess, sys, time
from pathlib import Path
for _ in range(int(sys.argv[1])):
    subprocess.Popen(["sleep", "600"])
Path("started").touch()
time.sleep(600)
"""


def sampling_seconds(folder: Path) -> float:
    """Return the processor seconds of a sample."""
    for name in ("control", "data"):
        (folder / name).mkdir()
    clock = ManualClock()
    store = Store.open(f"file://{folder}/control", f"file://{folder}/data", clock=clock)
    run_dir = folder / "runs" / "job-1-000001"
    run_dir.mkdir(parents=True)
    launcher = LocalLauncher(run_dir.parent, adopt=False, groups=False)
    process = launcher.launch(
        JobLaunch([sys.executable, "-c", TREE, str(PROCESSES)], run_dir, folder, dict(os.environ))
    )
    try:
        while process.exit_code() is None and not (folder / "started").exists():
            time.sleep(0.1)
        sampler = UtilizationSampler(
            store,
            JobKey("job-1", 1),
            clock,
            counters=process.counters,
            status=lambda: None,
            vcpus=os.cpu_count() or 1,
            gpus=range(measure().gpus),
        )
        began = time.process_time()
        for _ in range(SAMPLES):
            sampler.sample()
            sampler.write()
            clock.advance(SAMPLE_EVERY)
        return (time.process_time() - began) / SAMPLES
    finally:
        process.kill()


def timing_seconds() -> float:
    """Return the processor seconds that the timing of a step takes."""
    timing = LoopTiming()
    began = time.process_time()
    for _ in range(STEPS):
        timing.begin_step()
        with timing.waiting():
            pass
        timing.end_step()
    return (time.process_time() - began) / STEPS


def _print(name: str, value: float, limit: float, unit: str, note: str) -> bool:
    figure = {"name": f"measure.{name}", "value": round(value, 6), "limit": limit, "unit": unit, "note": note}
    print(json.dumps(figure), flush=True)
    return value <= limit


def main() -> int:
    """Print the figures; 1 if one is over its limit."""
    with tempfile.TemporaryDirectory(prefix="everspot-bench-") as folder:
        sample = sampling_seconds(Path(folder))
    an_hour = sample * timedelta(hours=1) / SAMPLE_EVERY
    step = timing_seconds()
    share = an_hour / 3600 + step / STEP_SECONDS
    note = f"{sample * 1000:.2f} ms a sample of {PROCESSES} processes every {SAMPLE_EVERY.total_seconds():g} s"
    of_step = f"one processor that samples and trains, {step * 1e6:.2f} µs of timing in a step of {STEP_SECONDS:g} s"
    within = [
        _print("cpu_seconds_per_hour", an_hour, SHARE_LIMIT * 3600, "processor seconds", note),
        _print("step_share", share, SHARE_LIMIT, "ratio", of_step),
    ]
    return int(not all(within))


if __name__ == "__main__":
    sys.exit(main())
