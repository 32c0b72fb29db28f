"""Processes to be killed: each increments one document and creates others, by conditional writes, until it is killed.

usage: hammer.py FOLDER. Reads names, and for each starts a process of that name and prints its id: starting a new
interpreter would take longer than the process lives. A process writes a line into NAME.log beside the folder for every
write that was answered, before the next one begins.
"""

import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from everspot_core.jobs.records import Request
from everspot_store import Bucket, Table


def main() -> None:
    folder = Path(sys.argv[1])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # killed children are reaped immediately
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            hammer(folder, line.strip())
        print(pid, flush=True)


def hammer(folder: Path, name: str) -> None:
    """Write until the end."""
    sys.stdout = (folder.parent / f"{name}.log").open("w")
    table = Table(Bucket.open(folder.as_uri()), "cancels", Request)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    payload = folder.parent / f"payload-{name}"
    payload.write_bytes(name.encode() * 50_000)
    print("ready", flush=True)
    number = 0
    while True:
        old = table.get("counter")
        if old is None:
            written = table.create("counter", Request(at=at, by=name, note="1"))
        else:
            written = table.replace("counter", old, Request(at=at, by=name, note=str(int(old.value.note) + 1)))
        if written is not None:
            print(f"counted {written.value.note}", flush=True)
        number += 1
        if table.create(f"{name}/{number}", Request(at=at, note="x" * 2000)) is not None:
            print(f"created {number}", flush=True)
        table.bucket.upload(f"parts/{name}/{number}", payload)
        print(f"uploaded {number}", flush=True)
        if number > 3:
            table.delete(f"{name}/{number - 3}")
            table.bucket.delete(f"parts/{name}/{number - 3}")
        print(f"deleted {number - 3}", flush=True)


main()
