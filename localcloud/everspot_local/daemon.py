"""The process that runs the local cloud until it is stopped.

It does not restart by itself, and its end ends every instance.
"""

import fcntl
import json
import logging
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from everspot_local.address import FILE, Address
from everspot_local.cloud import LocalCloud
from everspot_local.command import Command
from everspot_local.controls.script import Script
from everspot_local.providers import owner

log = logging.getLogger(__name__)
KUBERNETES = "kubernetes"
"""The folder of a Kubernetes beside the cloud."""
OLD = ("instances", "pulumi", KUBERNETES, "market.jsonl", "calls.jsonl", FILE)


class AlreadyRunning(RuntimeError):
    """Another daemon uses this folder."""


def serve(command: Command) -> None:
    """Run the local cloud until SIGTERM, SIGINT or `/_market/stop`.

    Raises:
        AlreadyRunning: if the folder has one.
    """
    folder = Path(command.state_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(f"a local cloud runs in {folder} already") from None
        _forget(folder)
        script = Script.load(command.script, command.trace, command.region)
        cloud = LocalCloud(command.options(), port=command.port)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: cloud.stopping.set())
        with cloud, _kubernetes(command, cloud) as kubeconfig:
            script.play(cloud.market, cloud.actions)
            Address(
                pid=os.getpid(),
                endpoint=cloud.endpoint,
                region=command.region,
                time_scale=command.scale,
                clock=cloud.market.clock.variable,
                cloud=command.cloud,
                kubeconfig=kubeconfig,
            ).write(folder)
            log.info("the local cloud answers at %s", cloud.endpoint)
            cloud.stopping.wait()
        (folder / FILE).unlink(missing_ok=True)


@contextmanager
def _kubernetes(command: Command, cloud: LocalCloud) -> Iterator[str]:
    """Start Kubernetes beside the cloud if the command asks for it, and yield its kubeconfig; empty without."""
    if command.kubernetes is None:
        yield ""
        return
    from everspot_local.aws.pod_roles import PodRoles  # the other clouds need not wait for them
    from everspot_local.kubernetes.cluster import LocalKubernetes
    from everspot_local.kubernetes.karpenter import CLUSTER

    environment = owner(command.cloud, cloud.endpoint, command.region)
    zones = sorted(cloud.provider.zone_ids(command.region))
    folder = Path(command.state_dir) / KUBERNETES
    roles = PodRoles(command.region, CLUSTER)
    with LocalKubernetes(Path(command.kubernetes), folder, environment, zones, roles) as kubernetes:
        yield str(kubernetes.kubeconfig)


def _forget(folder: Path) -> None:
    """Delete what the previous local cloud left in the folder: a new one starts as an empty account."""
    for name in OLD:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def main(arguments: list[str]) -> None:
    """Run `python -m everspot_local.daemon COMMAND-AS-JSON`."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    fields: dict[str, Any] = json.loads(arguments[0])
    serve(Command(**fields))


if __name__ == "__main__":
    main(sys.argv[1:])
