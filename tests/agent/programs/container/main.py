"""A program for a container: it prints what it sees, and waits at its twentieth step until it was interrupted once."""

import json
import os
import time
from pathlib import Path

STEPS = 40


def is_writable(path: str) -> bool:
    try:
        Path(path).write_text("x")
    except OSError:
        return False
    return True


state = Path(os.environ["EVERSPOT_CHECKPOINT_DIR"], "step")
outputs = Path(os.environ["EVERSPOT_OUTPUT_DIR"])
outputs.mkdir(exist_ok=True)
first = int(state.read_text()) if state.exists() else 0
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
sight = {
    "marker": Path("/marker").read_text(),
    "of_machine": Path("/usr/bin/apt").exists(),
    "root": sorted(path.name for path in Path("/").iterdir()),
    "root_writable": is_writable("/marker"),
    "tmp_writable": is_writable("/tmp/x"),
    "uid": os.getuid(),
    "of_image": os.environ["OF_IMAGE"],
    "own": os.environ["OWN"],
    "capabilities": int(status["CapEff"], 16) | int(status["CapBnd"], 16),
}
print(json.dumps(sight), flush=True)
for step in range(first + 1, STEPS + 1):
    state.with_suffix(".tmp").write_text(str(step))
    state.with_suffix(".tmp").rename(state)
    state.with_name(".everspot-complete").touch()
    print(f"EVERSPOT step={step}", flush=True)
    while step == STEPS // 2 and first == 0:
        time.sleep(0.05)
(outputs / "steps").write_text(f"{first} {step}")
