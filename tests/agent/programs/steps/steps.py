"""A program that does not use the trainer library, and reports its steps: `STEPS` says how."""

import os
import signal
import struct
import sys
import time
from pathlib import Path

MODE = os.environ["STEPS"]
STATE = Path("checkpoints/step")
first = int(STATE.read_text()) if STATE.exists() else 0


def save(step: int) -> None:
    STATE.with_suffix(".tmp").write_text(str(step))
    STATE.with_suffix(".tmp").rename(STATE)


def lines() -> None:
    print(f"EVERSPOT step={first} total_steps=400 steps_per_epoch=40", flush=True)
    for step in range(first + 1, 401):
        save(step)
        print(f"\r 10%|###  |INFO EVERSPOT step={step} loss={1 / step} eval/top-1={step / 400}", flush=True)
        time.sleep(0.01 if first else 0.1)


def event_files() -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    # It leaves at the end of a step, and says so by its exit code, so that the event and the state are of one step.
    leaving: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: leaving.append(number))
    writer = EventFileWriter("checkpoints/runs/a", flush_secs=1)
    for step in range(first + 1, 31):
        summary = Summary(value=[Summary.Value(tag="train/loss", simple_value=1 / step)])
        writer.add_event(Event(step=step, wall_time=time.time(), summary=summary))
        writer.flush()
        save(step)
        print(f"at {step}", flush=True)
        while (
            str(step) == os.environ.get("HOLD_AT") and first == 0 and not leaving
        ):  # a stop comes late on a busy machine
            time.sleep(0.05)
        if leaving:
            break
        time.sleep(0.2)
    writer.close()


def hostile() -> None:
    output = sys.stdout.buffer
    output.write(b"EVERSPOT step=5 loss=0.5\n")
    output.flush()
    folder = Path("runs")
    folder.mkdir()
    (folder / "events.out.tfevents.1").write_bytes(struct.pack("<QI", 1 << 62, 0) + b"x" * 100)
    (folder / "events.out.tfevents.2").write_bytes(os.urandom(1 << 20))
    (folder / "events.out.tfevents.3").mkdir()
    os.mkfifo(folder / "events.out.tfevents.4")
    (folder / "events.out.tfevents.5").symlink_to("/dev/zero")
    output.write(
        b"EVERSPOT step=-1 loss=0\nEVERSPOT step=1e99\nEVERSPOT step=\nEVERSPOT \nEVERSPOT step=99999999999999999\n"
    )
    output.write(b"EVERSPOT step=6 a=nan b=1e308 c=-inf d=1e9999 e=0x10 __class__=1 f=1_0 =3 g==4 \xff=5\n")
    output.write(os.urandom(4 << 20))
    output.write(b"\nEVERSPOT step=7 " + b"x=1 " * 100_000 + b"\n")
    output.write(b"EVERSPOT step=8 " + b" ".join(b"m%d=1" % n for n in range(700)) + b"\n")
    output.flush()
    for step in range(9, 30_009):
        output.write(b"EVERSPOT step=%d loss=%f m%d=1\n" % (step, 1 / step, step))
        if step % 5000 == 0:
            output.flush()
            time.sleep(0.5)
    output.write(b"EVERSPOT step=30009 loss=0.25\n")
    output.flush()


{"lines": lines, "event files": event_files, "hostile": hostile}[MODE]()
