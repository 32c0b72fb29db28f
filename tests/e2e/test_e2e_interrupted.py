"""Ctrl-C during the demo ends every process that it started."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]


def list_processes(place: Path) -> list[str]:
    """Command lines of living processes that name a folder, in their words or in their environment."""
    commands = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                where = (entry / "environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(place) in words or str(place) in where:
                commands.append(words)
    return commands


def at_work(out: Path) -> bool:
    """Return whether the engine and the provider are creating the cluster, judged by the cloud's requests."""
    calls = out / "local" / "calls.jsonl"
    return calls.exists() and "ec2:CreateVpc" in calls.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)])
def test_nothing_is_left_after_an_interrupt(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "demo"
    demo = subprocess.Popen(
        [sys.executable, "-u", "-m", "everspot_local.demo", "--out", str(out)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    with demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "up -s local" in line:
                break
        end = time.monotonic() + 300
        while not at_work(out):
            assert time.monotonic() < end and demo.poll() is None
            time.sleep(0.1)
        assert len(list_processes(out)) >= 3
        if number is signal.SIGINT:
            os.killpg(demo.pid, number)  # as a terminal does it: to everyone in the foreground
        else:
            demo.send_signal(number)
        output = demo.stdout.read()
    assert demo.returncode == 128 + number, output
    assert list_processes(out) == []
