"""Runs an instance as a container of the image: `boot_container.py HOME IMAGE`, in the environment of an instance.

The container is Podman's, of a user who is not root, and in this machine's network. It has what a host gives one: the
metadata service and the cloud's endpoint, by variables. SIGTERM becomes `podman stop`, as on a host that shuts down.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from everspot_local.machines import contained, keeper
from rootless import rootless

STOP_SECONDS = 90
"""What the Dockerfile tells its users to give a container."""

home, image = Path(sys.argv[1]), sys.argv[2]
name = os.environ[keeper.MARK]
command = ["podman", "run", "--rm", "--name", name, "--network", "host"]
command += ["--runtime", "runc", "--pull", "never", "--log-driver", "passthrough"]
for variable, value in contained.read_settings(os.environ, "").environment.items():
    command += ["--env", f"{variable}={value}"]
stop = rootless(home, ["podman", "stop", "--time", str(STOP_SECONDS), name], store=name)
container = subprocess.Popen(rootless(home, [*command, image], store=name))
signal.signal(signal.SIGTERM, lambda *_: subprocess.Popen(stop))
sys.exit(container.wait())
