"""The clock of a booted image: which one it follows, and that it is the only one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from image_machine import LoneMachine, until

PYTHON = "/opt/everspot/bin/python"
AHEAD = 3600
TIME_SERVER = f"""
import socket, struct, time
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("169.254.169.123", 123))
while True:
    query, client = server.recvfrom(1024)
    now = int((time.time() + 2208988800 + {AHEAD}) * 2**32)  # NTP counts from 1900 (RFC 5905, section 6)
    head = struct.pack("!BBbbII4s", 0x24, 1, 4, -20, 0, 0, b"TEST")  # a server of version 4 with a clock of its own
    server.sendto(head + struct.pack("!Q", now) + query[40:48] + struct.pack("!QQ", now, now), client)
"""
MEASURE = ("chronyd", "-x", "-Q", "-t", "20", "-f", "/etc/chrony/chrony.conf")
"""Prints how far the clock is off, after at most 20 s, and leaves it alone."""


@pytest.fixture
def machine(tmp_path: Path, image: Path) -> Iterator[LoneMachine]:
    (tmp_path / "added").mkdir()
    machine = LoneMachine(tmp_path / "machine", image, tmp_path / "added")
    yield machine
    machine.close()


def test_an_image_follows_the_clouds_clock_and_no_other(machine: LoneMachine) -> None:
    assert machine.await_boot() == "running", machine.run("systemctl", "--failed", "--no-legend")
    assert machine.run("systemctl", "is-enabled", "chrony.service").strip() == "enabled"
    # The clock of a container is its host's: the unit is passed over and has not failed.
    assert machine.show("chrony.service", "ConditionResult") == "no"
    settings = machine.run("chronyd", "-p", "-f", "/etc/chrony/chrony.conf").splitlines()
    sources = ("server", "pool", "peer", "refclock", "sourcedir", "confdir", "include")
    assert [line.split()[:2] for line in settings if line.split()[:1] and line.split()[0] in sources] == [
        ["server", "169.254.169.123"]
    ]
    active = machine.run("systemctl", "list-unit-files", "--state=enabled", "--no-legend")
    assert "timesyncd" not in active and "ntpsec" not in active

    unreachable = machine.run(*MEASURE, check=False)
    assert "System clock wrong" not in unreachable
    machine.run("ip", "link", "set", "lo", "up")
    machine.run("ip", "address", "add", "169.254.169.123/32", "dev", "lo")
    machine.run("systemd-run", "--unit=tests-time", PYTHON, "-c", TIME_SERVER)
    until(lambda: ":123 " in machine.run("ss", "--udp", "--listening", "--numeric"), "the server of time listens")
    measured = machine.run("sh", "-c", f"{' '.join(MEASURE)} 2>&1")
    (line,) = (line for line in measured.splitlines() if "System clock wrong by" in line)
    assert abs(float(line.partition("wrong by ")[2].split()[0]) - AHEAD) < 5
