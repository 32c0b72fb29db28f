"""Process 1 of the machines that tests boot: it writes its environment to the console, and switches off on request.

It stands in for systemd, so that no image has to be baked. Its first line, which names the interpreter, is written by
the test.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

POWER_OFF = 0x4321FEDC  # linux/reboot.h


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


def user_data() -> dict[str, str]:
    """Return this machine's user data from a local cloud's metadata service; empty for any other service."""
    try:
        call = urllib.request.Request("http://169.254.169.254/latest/api/token", method="PUT")
        call.add_header("X-aws-ec2-metadata-token-ttl-seconds", "60")
        with urllib.request.urlopen(call, timeout=20) as answer:
            token = answer.read().decode()
        call = urllib.request.Request("http://169.254.169.254/latest/user-data")
        call.add_header("X-aws-ec2-metadata-token", token)
        with urllib.request.urlopen(call, timeout=20) as answer:
            return dict(json.loads(answer.read()))
    except OSError:
        return {}


def writable(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError:
        return False
    return True


def variable(settings: str, name: str) -> str:
    return next((part.partition("=")[2] for part in settings.split('"') if part.startswith(f"{name}=")), "")


def facts() -> dict[str, object]:
    settings = Path("/run/systemd/system.conf.d/machine.conf").read_text()
    url = variable(settings, "SERVICE_URL")
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "uptime": float(Path("/proc/uptime").read_text().split()[0]),
        "interfaces": [name for _, name in socket.if_nameindex()],
        "processes": sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()),
        "group": Path("/proc/self/cgroup").read_text().splitlines()[-1].rpartition(":")[2],
        "settings": settings,
        "kernel": writable("/proc/sys/kernel/hostname"),
        "service": fetch(url) if url else "",
        "added": Path("/etc/added").read_text() if Path("/etc/added").exists() else "",
        "modules": ctypes.CDLL(None).prctl(23, 16, 0, 0, 0),  # PR_CAPBSET_READ of CAP_SYS_MODULE
    }


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN + 4})
    order = user_data()
    properties = facts()
    Path("/written").write_text("by the machine")
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if health := variable(str(properties["settings"]), "HEALTH"):
        host, _, port = health.rpartition(":")
        server = [sys.executable, "-m", "http.server", "--bind", host, "--directory", "/etc", port]
        subprocess.Popen(server, stderr=subprocess.DEVNULL)
    print(json.dumps({**properties, "order": order}), flush=True)
    if order.get("do") != "leave":
        signal.sigwait({signal.SIGRTMIN + 4})
        print("asked to switch off", flush=True)
    time.sleep(0.1)  # for the console
    ctypes.CDLL(None).reboot(POWER_OFF)


main()
