"""An owner to be stopped: it holds a lease, publishes checkpoints and retires old ones in a loop.

usage: sleeper.py CONTROL_URL DATA_URL JOB EPOCH OWNER TTL_SECONDS SCRATCH GUARDED. Prints what it does. GUARDED 0: it
ignores its own lease, as a program would that was stopped just behind the question, so that the fence alone protects.
"""

import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

from everspot_core.jobs.records import Progress
from everspot_store import Fenced, Store


def report(line: str) -> None:
    """In one write: two threads speak."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    control, data, job, epoch, owner, ttl, scratch, guarded = sys.argv[1:]
    store = Store.open(control, data)
    lease = store.acquire(job, int(epoch), owner, ttl=timedelta(seconds=float(ttl)))
    assert lease is not None
    checkpoints = store.checkpoints(job, int(epoch), guard=lease.valid if guarded == "1" else None)
    restored = checkpoints.restore(Path(scratch, "restored"))
    step = restored.step if restored else 0

    def beat() -> None:
        while lease.renew(Progress(step=step)):
            time.sleep(float(ttl) / 5)
        report("lost")

    threading.Thread(target=beat, daemon=True).start()
    part = Path(scratch, "part")
    report("ready")
    try:
        while True:
            step += 1
            part.write_bytes(f"{owner} {step}".encode() * 20_000)
            checkpoints.publish(step, {"model": part, "optimizer": part})
            report(f"published {step}")
            checkpoints.retire()
    except Fenced as error:
        report(f"fenced {error}")


main()
