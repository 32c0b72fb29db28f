"""The boot command of the image: `everspot-agent`. All its settings come from the metadata service."""

import argparse
import importlib.metadata
import json
import logging
import os
import shlex
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import FrameType

from everspot_clouds.base import Identity, Metadata, MetadataError, MetadataUnavailable
from everspot_clouds.registry import DEFAULT_CLOUD, UnknownCloud, provider
from everspot_core.clock import Clock
from everspot_core.cluster.boot import boot_deadline
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.records import Market, Role
from everspot_store import Store, StoreError, SystemClock, located

from everspot_train.agent.agent import Agent, HelperDied
from everspot_train.agent.brokered import BrokerLauncher
from everspot_train.agent.cuda import await_cuda
from everspot_train.agent.fitness import Fitness, find_type
from everspot_train.agent.hardware import measure
from everspot_train.agent.health import health_at
from everspot_train.agent.heartbeat import Heartbeat
from everspot_train.agent.metadata import read_manifest
from everspot_train.agent.own_log import OwnLog
from everspot_train.agent.process import LocalLauncher
from everspot_train.agent.program import LAUNCHER_VARIABLE
from everspot_train.agent.starter import Starter, Surroundings
from everspot_train.agent.watch import SOURCES_VARIABLE, NoticeWatcher, sources_from
from everspot_train.broker.protocol import HOME, SOCKET_VARIABLE
from everspot_train.self_test import SelfTestFailed, run_as_job, run_self_test

CLOUD_VARIABLE = "EVERSPOT_CLOUD"
"""The variable that names the cloud of the metadata service, since there is no manifest yet at boot."""
HOME_VARIABLE = "EVERSPOT_HOME"
DEFAULT_HOME = str(HOME)
POWEROFF_VARIABLE = "EVERSPOT_POWEROFF"
RUNTIME_VARIABLE = "EVERSPOT_RUNTIME"
"""The variable with the folder in which the image's boot deadline looks for the files `reported` and `boot-deadline`
(seconds)."""
POWEROFF_TIMEOUT = timedelta(seconds=30)
STOP_VARIABLE = "EVERSPOT_STOP_SECONDS"
"""The variable with the seconds between SIGTERM and the agent's end, in place of the cloud's rules."""
BOOT_ATTEMPTS = 12
BOOT_WAIT = timedelta(seconds=5)

_log = logging.getLogger(__name__)


class BootError(Exception):
    """The instance cannot join a cluster. The message has the reason."""


def main(arguments: list[str] | None = None) -> None:
    """Run until the instance has to end, and exit with 0. Exit with 1 if the instance cannot join its cluster."""
    options = _parser().parse_args(arguments)
    if options.version:
        print(_describe_version(Path(sys.prefix)))  # noqa: T201
        return
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    own_log = OwnLog()
    logging.getLogger().addHandler(own_log)
    try:
        sys.exit(_self_test() if options.self_test else _run(options, own_log))
    except (BootError, HelperDied, SelfTestFailed, StoreError) as error:
        _log.error("%s", error)
        sys.exit(1)
    except Exception:  # log it, because the agent's log is uploaded
        _log.exception("the agent failed")
        sys.exit(1)
    finally:
        own_log.ship()


def _describe_version(environment: Path) -> str:
    """Return the version and, inside an image, the commit and the digest of the lock file of its dependencies.

    `environment`: the virtual environment, in which provision.sh writes `image.json`.
    """
    version = f"everspot {importlib.metadata.version('everspot')}"
    try:
        image = json.loads((environment / "image.json").read_text())
    except FileNotFoundError:
        return version
    return f"{version}, commit {image['commit']}, lock {image['lock']}"


def _self_test() -> int:
    clock, broker = SystemClock.from_environment(), os.environ.get(SOCKET_VARIABLE)
    if broker:
        run_as_job(BrokerLauncher(Path(broker)), clock)
    else:
        run_self_test(clock)
    return 0


def _run(options: argparse.Namespace, own_log: OwnLog) -> int:
    clock = SystemClock.from_environment()
    home = Path(os.environ.get(HOME_VARIABLE) or DEFAULT_HOME)
    home.mkdir(parents=True, exist_ok=True)
    metadata = _metadata(options, clock)
    manifest, identity = _introduce(metadata, clock)
    _log.info("cluster %s, %s %s (%s)", manifest.cluster, manifest.role.value, identity.instance_id, identity.zone)
    if manifest.proxy is not None:
        # Read by the store's client, by the scheduler that this process may become, and by jobs.
        os.environ.update(manifest.proxy.environment())
    runtime = os.environ.get(RUNTIME_VARIABLE)
    if runtime:
        kind = find_type(manifest, identity.instance_type)
        gpus = kind.gpus if kind is not None else 0
        deadline = boot_deadline(manifest.limits, identity.instance_type, gpus)
        (Path(runtime) / "boot-deadline").write_text(f"{deadline.total_seconds():.0f}\n")
    reported = Path(runtime) / "reported" if runtime else None
    if manifest.role is Role.SCHEDULER:
        if reported is not None:
            reported.touch()
        _become_scheduler(manifest, home, identity.instance_id)
    agent = _agent(metadata, manifest, identity, home, clock, reported, own_log)
    within = _stop_within(manifest, identity)

    def shut_down(_number: int, _frame: FrameType | None) -> None:
        agent.shut_down(within)

    signal.signal(signal.SIGTERM, shut_down)
    signal.signal(signal.SIGINT, shut_down)
    limit = manifest.limits.orphan_limit
    health = health_at(manifest.health_port, lambda: agent.alive_at, limit, clock)
    leave = agent.run()
    if health is not None:
        health.close()
    _log.info("leaving: %s", leave.reason)
    if leave.poweroff:
        _leave_machine(metadata)
    return 0


def _stop_within(manifest: Manifest, identity: Identity) -> timedelta:
    """Return the real time that the job has to stop when this machine is being switched off."""
    stated = os.environ.get(STOP_VARIABLE)
    return timedelta(seconds=float(stated)) if stated else provider(manifest.cloud).stop_within(identity.market)


def _agent(
    metadata: Metadata,
    manifest: Manifest,
    identity: Identity,
    home: Path,
    clock: Clock,
    reported: Path | None,
    own_log: OwnLog,
) -> Agent:
    try:
        sources = sources_from(os.environ.get(SOURCES_VARIABLE))
    except ValueError as error:
        raise BootError(str(error)) from error
    manifest = located(manifest)
    store = Store.open(manifest.control_url, manifest.data_url, clock=clock)
    own_log.to(store, identity.instance_id, clock)
    kind = find_type(manifest, identity.instance_type)
    hardware = measure(kind)
    cuda_fault = await_cuda(hardware.gpus, clock) if kind is not None and kind.gpus else None
    watch = NoticeWatcher(store, metadata, identity.instance_id, clock, sources=sources)
    version = importlib.metadata.version("everspot")
    heartbeat = Heartbeat(
        store, manifest, identity, hardware, watch.store_contact, clock, agent_version=version, reported=reported
    )
    broker = os.environ.get(SOCKET_VARIABLE)
    surroundings = Surroundings(
        home, dict(os.environ), os.environ.get(LAUNCHER_VARIABLE), separate_caches=broker is not None
    )
    starter = Starter(
        store=store,
        manifest=manifest,
        identity=identity,
        hardware=hardware,
        processes=BrokerLauncher(Path(broker)) if broker else LocalLauncher(surroundings.runs, adopt=True),
        surroundings=surroundings,
        clock=clock,
    )
    starter.clear_remains()
    fitness = Fitness(kind, hardware, home, os.environ, clock, cuda_fault=cuda_fault)
    return Agent(
        manifest=manifest,
        starter=starter,
        watch=watch,
        heartbeat=heartbeat,
        fitness=fitness,
        own_log=own_log,
        clock=clock,
    )


def _introduce(metadata: Metadata, clock: Clock) -> tuple[Manifest, Identity]:
    """Read manifest and identity. The metadata service may start late at boot, so the reads are repeated for about a
    minute."""
    for attempts_left in range(BOOT_ATTEMPTS - 1, -1, -1):
        try:
            return read_manifest(metadata), metadata.identity()
        except MetadataUnavailable as error:
            if not attempts_left:
                raise BootError(f"the metadata service does not answer: {error}") from error
            _log.warning("the metadata service does not answer yet: %s", error)
        except MetadataError as error:
            raise BootError(str(error)) from error
        clock.sleep(BOOT_WAIT)
    raise AssertionError("unreachable: the last attempt returns or raises")


def _become_scheduler(manifest: Manifest, home: Path, instance_id: str) -> None:
    """Replace this process by the scheduler's: one image serves both roles, and neither imports the other."""
    path = home / "manifest.json"
    path.write_bytes(manifest.to_json())
    command = [sys.executable, "-m", "everspot_scheduler.main", "--manifest", str(path), "--instance", instance_id]
    os.execv(sys.executable, command)  # noqa: S606  our own program


def _leave_machine(metadata: Metadata) -> None:
    """End this instance, so that it no longer costs money: by a call to the cloud, or by switching the machine off. If
    the call fails, the machine is switched off, which saves at least a part of the cost."""
    try:
        if metadata.end():
            return
    except MetadataError as error:
        _log.error("the cloud could not be asked to end this instance: %s", error)
    _power_off()


def _power_off() -> None:
    """Switch the instance off, by the command that the image's unit names.

    Without a command the agent only ends, because it must never switch off a machine outside of a cloud, such as a
    laptop that runs the local cloud. If the command fails, the agent ends, and the scheduler sees the instance GONE.
    """
    command = shlex.split(os.environ.get(POWEROFF_VARIABLE) or "")
    if not command:
        _log.warning("%s is not set: the agent ends and the machine runs on", POWEROFF_VARIABLE)
        return
    try:
        subprocess.run(command, check=True, timeout=POWEROFF_TIMEOUT.total_seconds())  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        _log.error("powering off failed: %s", error)


def _metadata(options: argparse.Namespace, clock: Clock) -> Metadata:
    if options.manifest is None:
        try:
            return provider(os.environ.get(CLOUD_VARIABLE) or DEFAULT_CLOUD).metadata(clock, os.environ.get)
        except (UnknownCloud, MetadataError) as error:
            raise BootError(f"{CLOUD_VARIABLE}: {error}") from error
    if options.instance_id is None:
        raise BootError("--manifest needs --instance-id: there is no metadata service to ask")
    identity = Identity(
        instance_id=options.instance_id,
        instance_type=options.instance_type,
        zone=options.zone,
        market=Market(options.market),
    )
    from everspot_clouds.folder import FolderMetadata

    return FolderMetadata(options.manifest, identity)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="everspot-agent",
        description="Runs training jobs on this instance. Without options, the metadata service provides its identity.",
    )
    parser.add_argument("--version", action="store_true", help="print version, commit and digest of the lock, and end")
    parser.add_argument("--self-test", action="store_true", help="check whether jobs could run here, and end")
    parser.add_argument("--manifest", type=Path, help="a manifest file, where there is no metadata service")
    parser.add_argument("--instance-id", help="with --manifest: this instance's id, unique in the cluster")
    parser.add_argument("--instance-type", default="local", help="with --manifest (default: %(default)s)")
    parser.add_argument("--zone", default="local", help="with --manifest (default: %(default)s)")
    parser.add_argument(
        "--market", default=Market.ON_DEMAND.value, choices=[m.value for m in Market], help="with --manifest"
    )
    return parser


if __name__ == "__main__":
    main()
