"""What the programs of this folder share: a place where the first attempt waits to be struck, and a record of what was
computed."""

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

NOTES = Path(os.environ["NOTES"])
RANK = os.environ.get("RANK", "0")


def strike(place: str) -> None:
    """In the first attempt that comes to this place: say so, and wait until the test goes on."""
    if os.environ.get("STRIKE") != place or (NOTES / "struck").exists():
        return
    if RANK == "0":
        (NOTES / "here").touch()
    while not (NOTES / "struck").exists():
        time.sleep(0.02)


def record(**figures: Any) -> None:
    if RANK == "0":
        with (NOTES / "record.jsonl").open("a") as file:
            file.write(json.dumps(figures) + "\n")


def digest(model: Any) -> str:
    state = sorted(model.state_dict().items())
    return hashlib.sha256(b"".join(value.contiguous().numpy().tobytes() for _, value in state)).hexdigest()
