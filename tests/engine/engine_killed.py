"""Killed updates: the engine gets SIGKILL when a given request reaches the cloud."""

import atexit
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from everspot_cli.main import main
from everspot_clouds.base import Cloud
from everspot_scheduler.loop import Scheduler
from everspot_store import Store

PATIENCE = 300.0
STEADY = 12
"""Looks, each a quarter of a second apart, that have to find the same."""


def kill_update_at(rig: Any, action: str, stack: str, *command: str) -> None:
    """Begin an update, or another command of the engine, and kill the engine once the cloud was asked for an action.

    The cloud carries the action out: the provider lives on, as it does where a runner's job is killed while its
    requests are under way.
    """
    book = rig.project / "local" / "calls.jsonl"
    read_from = book.stat().st_size
    if stack not in rig.stacks:
        rig.engine.run(["stack", "init", stack], str(rig.project), rig.env)
        rig.stacks.add(stack)
    atexit.register(end_language_hosts, rig.project)
    words = command or ("up", "--skip-preview")
    pulumi = shutil.which("pulumi", path=rig.env["PATH"])
    with subprocess.Popen(
        [pulumi, *words, "--yes", "--parallel=64", "--stack", stack],
        cwd=rig.project,
        env=rig.plugins.attached(rig.env),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as engine:
        try:
            ends = time.monotonic() + PATIENCE
            while action not in book.read_text()[read_from:]:
                assert engine.poll() is None, "the update ended before it was killed"
                assert time.monotonic() < ends, f"the cloud was not asked for {action}"
                time.sleep(0.005)
        finally:
            os.killpg(engine.pid, signal.SIGKILL)
    rig.engine.run(["cancel", "--yes", "--stack", stack], str(rig.project), rig.env)


def end_language_hosts(project: Path) -> None:
    """End the language hosts of a project: they outlive an engine that was killed, and wait for it for ever."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            command, environment = ((entry / name).read_bytes() for name in ("cmdline", "environ"))
            if b"pulumi-language-python" in command and os.fsencode(project) in command + environment:
                os.kill(int(entry.name), signal.SIGKILL)


def settled(rig: Any, present: Callable[[], set[str]]) -> set[str]:
    """Return the resources of a killed update, at least one, once they are stable: the provider still carries out
    earlier requests."""
    history: list[set[str]] = []

    def steady() -> bool:
        history.append(present())
        return (
            bool(history[-1])
            and len(history) > STEADY
            and all(snapshot == history[-1] for snapshot in history[-STEADY:])
        )

    rig.wait(steady)
    return history[-1]


@contextmanager
def scheduling(store: Store, cloud: Cloud) -> Iterator[None]:
    """The cluster's scheduler, on this machine."""
    over = threading.Event()
    thread = threading.Thread(target=Scheduler(store, store.manifest(), cloud, "s-1").run, args=(over.is_set,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        cloud.close()


def anomalies(store: Store) -> dict[str, str]:
    """Return the scheduler's messages about resources that belong to no stack."""
    document = store.notes.anomalies.read()
    return {a.subject: a.words for a in document.open if a.kind == "orphaned-capacity"} if document is not None else {}


def pending(rig: Any, stack: str) -> set[str]:
    """The names of the resources whose operations are pending in a stack's state."""
    deployment = json.loads(rig.pulumi("stack", "export", stack=stack))["deployment"]
    entries = deployment.get("pending_operations") or []
    return {entry["resource"]["urn"].rpartition("::")[2] for entry in entries}


@contextmanager
def at_home(rig: Any) -> Iterator[None]:
    """A shell in the project's folder, which knows the local cloud."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in rig.env.items():
            patch.setenv(name, value)
        for name in ("AWS_PROFILE", "EVERSPOT_STORE", "EVERSPOT_CLUSTER"):
            patch.delenv(name, raising=False)
        patch.setenv("XDG_CONFIG_HOME", str(rig.project / "config"))
        patch.setenv("XDG_CACHE_HOME", str(rig.project / "cache"))
        patch.chdir(rig.project)
        yield


def everspot(*arguments: str) -> int:
    """Run a command line in this process. Returns its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)
