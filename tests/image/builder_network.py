"""Runs a builder such as Packer inside the private network of the local cloud's machines.

`python builder_network.py CLOUD ENDPOINT REGION COMMAND…`. The command has a network of its own, in which there are the
local cloud's endpoint and, at every private address, port 22 of the instance that has the address: what a session of
Systems Manager, a tunnel of Identity-Aware Proxy or a VPN leads to. Google's APIs have their own names there. Nothing
of this machine's own network is changed.
"""

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import boto3
from everspot_clouds.gcp.http_api import Api
from everspot_local.gcp.project import PROJECT
from everspot_local.machines import keeper, namespaces
from everspot_local.machines.doors import carry
from everspot_store import SystemClock

sys.path.insert(0, str(Path(__file__).parent))
from builder_image import copy_both
from google_front import GoogleFront

PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")


def find_init(instance_id: str) -> int | None:
    """Return process 1 of an instance's machine, as this machine counts it."""
    marked = set(keeper.marked(instance_id))
    for pid, (parent, _) in keeper.processes().items():
        with suppress(OSError):
            if parent in marked and Path(f"/proc/{pid}/comm").read_text().strip() in ("systemd", "init"):
                return pid
    return None


class PrivateNetwork:
    """The way from an address of a private network to the machine that has it."""

    def __init__(self, cloud: str, endpoint: str, region: str) -> None:
        self._cloud = cloud
        self._ec2 = boto3.client("ec2", endpoint_url=endpoint, region_name=region) if cloud == "aws" else None

    def find_instance(self, address: str) -> str:
        """Return the id of the instance that has an address."""
        if self._ec2 is not None:
            filters = [{"Name": "private-ip-address", "Values": [address]}]
            (reservation,) = self._ec2.describe_instances(Filters=filters)["Reservations"]
            return str(reservation["Instances"][0]["InstanceId"])
        answer = Api(SystemClock()).get("compute", f"projects/{PROJECT}/aggregated/instances")
        instances = [each for scope in answer["items"].values() for each in scope.get("instances", ())]
        (instance_id,) = (i["id"] for i in instances if i["networkInterfaces"][0]["networkIP"] == address)
        return str(instance_id)

    def connect(self, address: str) -> socket.socket:
        """Connect to port 22 of the instance with an address; on a thread of its own, which enters its network."""
        init = find_init(self.find_instance(address))
        if init is None:
            raise ConnectionRefusedError(f"{address} has not booted")
        namespace = os.open(f"/proc/{init}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            namespaces.enter(namespace, namespaces.NEWNET)
        finally:
            os.close(namespace)
        return socket.create_connection(("127.0.0.1", 22))

    def carry(self, listener: socket.socket) -> None:
        """Carry each connection to the instance whose address it was made to."""
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self._carry_one, args=(client,), daemon=True).start()

    def _carry_one(self, client: socket.socket) -> None:
        with client, suppress(OSError, ValueError), self.connect(client.getsockname()[0]) as machine:
            copy_both(client, machine)


def main(cloud: str, endpoint: str, region: str, *command: str) -> int:
    """Run the command; return its exit status."""
    outside = (str(urlsplit(endpoint).hostname), int(urlsplit(endpoint).port or 80))
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    namespaces.unshare(namespaces.NEWNET)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for block in PRIVATE:
        subprocess.run(["ip", "route", "add", "local", block, "dev", "lo"], check=True)
    doors = socket.create_server(outside, backlog=64), socket.create_server(("0.0.0.0", 22))
    env = dict(os.environ)
    front = None
    if cloud == "gcp":
        front = GoogleFront(socket.create_server(("127.0.0.1", 0)), outside, Path.cwd())
        env |= front.variables()
    process = subprocess.Popen(command, env=env)
    namespaces.enter(own, namespaces.NEWNET)
    network = PrivateNetwork(cloud, endpoint, region)
    threading.Thread(target=carry, args=(doors[0], outside), daemon=True).start()
    threading.Thread(target=network.carry, args=(doors[1],), daemon=True).start()
    if front is not None:
        threading.Thread(target=front.serve, daemon=True).start()
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
