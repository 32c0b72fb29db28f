"""A program without the library that prints its evaluations, and knows nothing of early stopping."""

import os
import time
from pathlib import Path

from gate import hold

STATE = Path("checkpoints/step")
first = int(STATE.read_text()) if STATE.exists() else 0
outputs = Path(os.environ["EVERSPOT_OUTPUT_DIR"])
outputs.mkdir(exist_ok=True)
print(f"EVERSPOT step={first} total_steps=100000", flush=True)
for step in range(first + 1, 100_001):
    if step % 5 == 0:
        print(f"EVERSPOT step={step} loss={1 / step} val_loss={1 / min(step, 20)}", flush=True)
    STATE.with_suffix(".tmp").write_text(str(step))
    STATE.with_suffix(".tmp").rename(STATE)
    (outputs / "model.txt").write_text(str(step))
    hold(step)
    time.sleep(0.02)
