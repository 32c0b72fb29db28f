"""The program on the tests' instances: a machine with a child process, a stubborn daemon, and access to the metadata
service."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path


def daemonize() -> None:
    """Fork twice in a new session, forget the environment, and ignore SIGTERM. The daemon is all that when this ends:
    the pipe closes with its new program."""
    done, doing = os.pipe()
    if child := os.fork():
        os.close(doing)
        os.read(done, 1)
        os.close(done)
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {"ESCAPED": "yes"})


def fetch(path: str) -> str:
    """One document of the metadata service."""
    root = os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"]
    request = urllib.request.Request(
        f"{root}/latest/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    )
    with urllib.request.urlopen(request) as answer:
        token = answer.read().decode()
    request = urllib.request.Request(f"{root}/{path}", headers={"X-aws-ec2-metadata-token": token})
    with urllib.request.urlopen(request) as answer:
        return str(answer.read().decode())


def main() -> None:
    """Do what the user data says."""
    order = json.loads(fetch("latest/user-data"))
    Path("environment.json").write_text(json.dumps(dict(os.environ)))
    if order["do"] == "exit":
        sys.exit(int(order["code"]))
    if order.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif order.get("tidy"):
        signal.signal(signal.SIGTERM, lambda *_: (Path("tidied").touch(), sys.exit(0)))
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    daemonize()
    print("up", flush=True)
    Path("ready").touch()
    while True:
        time.sleep(600)


main()
