"""The Pulumi stack of a cluster, through the user's own `pulumi`: its outputs, and its destroy."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import urlsplit

from everspot_clouds.stack_state import declared_clusters
from everspot_core.cluster.deployment import PendingOperation, pending_operations, resources
from everspot_core.documents import format_duration

from everspot_cli.errors import CliError, Exit
from everspot_cli.local_cloud_hints import with_local_cloud
from everspot_cli.target import stack_error

READ_TIMEOUT = timedelta(seconds=60)
"""Longest wait for an answer of the engine that changes nothing."""

DESTROY_TIMEOUT = timedelta(hours=1)
"""Longest wait for a destroy. Clouds take minutes to delete fleets and networks."""

STATE_TIMEOUT = timedelta(minutes=10)
"""Longest wait for a change of the state alone."""

STOP_TIMEOUT = timedelta(minutes=5)
"""Time for the engine to finish its present step, once it was asked to stop."""

FORCE_ENVIRONMENT = {"EVERSPOT_FORCE_DESTROY": "1"}
"""The variable that makes the components' guard allow a destroy. The CLI sets it because it has checked already,
by the cloud's answers, which are newer than the store's on instances that have just ended."""


def export(name: str | None) -> dict[str, Any]:
    """Return the engine's state of a stack, also of one that declares no cluster yet; None: the selected one.

    Raises:
        CliError: if there is no `pulumi`, or no such stack.
    """
    pulumi = shutil.which("pulumi")
    if pulumi is None:
        raise CliError("a stack is read by pulumi, which is not on PATH", Exit.UNAVAILABLE)
    return _read_stack(pulumi, name, "export")


@dataclass(frozen=True)
class Stack:
    """A stack of the Pulumi project in this folder.

    Attributes:
        pulumi: The engine's program.
        name: The stack's name; None: the selected one.
        outputs: Its outputs. If its first update did not end, they are derived from its state.
        environment: The variables with which the engine runs, where the process has others later: the profile by which
            a cluster's store is read need not be allowed to destroy its stack.
    """

    pulumi: str
    name: str | None
    outputs: dict[str, Any]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @classmethod
    def read(cls, name: str | None) -> "Stack":
        """Return a stack with its outputs.

        Raises:
            CliError: if there is no `pulumi`, no such stack, or no cluster in it.
        """
        pulumi = shutil.which("pulumi")
        if pulumi is None:
            hint = with_local_cloud("install it (https://www.pulumi.com/docs/install), or put it on PATH")
            raise CliError("a cluster is destroyed by pulumi, which is not on PATH", Exit.UNAVAILABLE, hint=hint)
        outputs = _read_stack(pulumi, name, "output", "--json")
        if not outputs.get("controlUrl") or not outputs.get("cluster"):
            outputs = _outputs_from_state(_read_stack(pulumi, name, "export"))
        if not outputs.get("cluster"):
            which = f"the stack {name}" if name else "the selected stack"
            raise CliError(f"{which} declares no cluster: it has no outputs cluster and controlUrl", Exit.NOT_FOUND)
        return cls(pulumi, name, outputs)

    @property
    def label(self) -> str:
        """The name of the stack, for people."""
        return f"stack {self.name}" if self.name else "this folder's Pulumi stack"

    @cached_property
    def state(self) -> Mapping[str, Any]:
        """The engine's state of the stack, as it was before anything was changed.

        Raises:
            CliError: if it cannot be read.
        """
        return self._export()

    @property
    def pending(self) -> tuple[PendingOperation, ...]:
        """The operations of an update that was interrupted."""
        return pending_operations(self.state)

    def deletes(self) -> tuple[str, ...]:
        """Return the cluster's buckets that a destroy deletes with their contents, from the stack's state.

        Raises:
            CliError: if the state cannot be read.
        """
        bucket_names = {_bucket(str(self.outputs.get(url) or "")) for url in ("controlUrl", "dataUrl")}
        stack_resources = resources(self.state)
        here = (
            resource
            for resource in stack_resources
            if resource.get("id") in bucket_names and not resource.get("retainOnDelete")
        )
        return tuple(sorted({str(resource["id"]) for resource in here}))

    def destroy(self, show_line: Callable[[str], None]) -> None:
        """Run `pulumi destroy` to its end. `show_line`: gets each line that it prints.

        The engine runs the Pulumi program, because only the program declares the guard's hooks. If that deletes
        nothing, the program itself may have failed, for example because an image or a network that it looks up is gone.
        Then the stack is destroyed by its state alone, without the program. The command has checked before what the
        guard would check.

        Raises:
            CliError: if it fails, or takes longer than `DESTROY_TIMEOUT`.
        """
        before = _urns(self.state)
        code, late = self._run_destroy(show_line, "--run-program")
        if code and not late and _urns(self._export()) == before:
            show_line("The program deleted nothing: destroying the stack by its state alone.")
            self._forget_hooks()
            code, late = self._run_destroy(show_line)
        if code:
            reason = f"did not end within {format_duration(DESTROY_TIMEOUT)}" if late else f"failed (exit code {code})"
            raise CliError(
                f"pulumi destroy {reason}; the cluster stays drained, and what was not deleted is still there",
                hint="what pulumi said is above: correct it, run `everspot cluster down` again, or "
                "`everspot cluster drain --undo` "
                "to keep the cluster",
            )

    def clear_pending(self) -> None:
        """Clear the pending operations, once the cloud has nothing of their resources.

        Raises:
            CliError: if the engine refuses.
        """
        self._change("refresh", "--yes", "--skip-preview", "--clear-pending-creates")

    def _forget_hooks(self) -> None:
        """Take the guard's hooks out of the state. The engine deletes no resource whose hook it does not know."""
        state = self._export()
        for resource in resources(state):
            cast(dict[str, Any], resource).pop("resourceHooks", None)
        self._change("stack", "import", stdin_text=json.dumps(state))

    def _export(self) -> dict[str, Any]:
        return _read_stack(self.pulumi, self.name, "export", environment=self.environment)

    def _change(self, *arguments: str, stdin_text: str | None = None) -> None:
        done = subprocess.run(  # noqa: S603 - our own words, no shell
            [self.pulumi, *arguments, "--non-interactive", *_chosen(self.name)],
            capture_output=True, text=True, check=False, input=stdin_text or "", timeout=STATE_TIMEOUT.total_seconds(),
            env={**os.environ, **self.environment},
        )  # fmt: skip
        if done.returncode:
            raise stack_error(self.pulumi, self.name, done.stderr or done.stdout, f"pulumi {arguments[0]} failed")

    def _run_destroy(self, show_line: Callable[[str], None], *options: str) -> tuple[int, bool]:
        """Run the engine once. Returns its exit code, and whether it was stopped because it took too long."""
        command = [
            *(self.pulumi, "destroy", "--yes", "--skip-preview", *options, "--non-interactive"),
            *("--color", "never", *_chosen(self.name)),
        ]
        with subprocess.Popen(  # noqa: S603 - our own words, no shell
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **self.environment, **FORCE_ENVIRONMENT},
        ) as running:
            watch = _Watch(running)
            try:
                for line in running.stdout or ():
                    show_line(line.rstrip())
                return running.wait(), watch.struck
            except KeyboardInterrupt:
                running.send_signal(signal.SIGINT)  # it ends the step that it is at, and keeps its state
                running.wait(STOP_TIMEOUT.total_seconds())
                raise
            finally:
                watch.cancel()


def _urns(state: Mapping[str, Any]) -> set[str]:
    return {str(item.get("urn")) for item in resources(state) if item.get("custom") and not _is_provider(item)}


def _is_provider(item: Mapping[str, Any]) -> bool:
    return str(item.get("type")).startswith("pulumi:providers:")


def _outputs_from_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs that a stack's state gives for its only cluster. Empty without a cluster, or with several."""
    manifests = declared_clusters(state)
    if len(manifests) != 1:
        return {}
    (manifest,) = manifests
    return {
        "cluster": manifest.cluster,
        "cloud": manifest.cloud,
        "region": manifest.region,
        "project": manifest.account,
        "controlUrl": manifest.control_url,
        "dataUrl": manifest.data_url,
    }


class _Watch:
    """Asks a process to stop after `DESTROY_TIMEOUT`, and kills it if it does not."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        import threading

        self.struck = False
        self._process = process
        self._timers = [
            threading.Timer(DESTROY_TIMEOUT.total_seconds(), self._interrupt),
            threading.Timer((DESTROY_TIMEOUT + STOP_TIMEOUT).total_seconds(), process.kill),
        ]
        for timer in self._timers:
            timer.daemon = True
            timer.start()

    def cancel(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def _interrupt(self) -> None:
        self.struck = True
        self._process.send_signal(signal.SIGINT)


def _read_stack(
    pulumi: str, name: str | None, *arguments: str, environment: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the answer of `pulumi stack`, which changes nothing."""
    command = [pulumi, "stack", *arguments, "--non-interactive", *_chosen(name)]
    try:
        done = subprocess.run(  # noqa: S603 - our own words, no shell
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=READ_TIMEOUT.total_seconds(),
            env={**os.environ, **environment},
        )
    except subprocess.TimeoutExpired:
        raise CliError(f"pulumi did not answer within {format_duration(READ_TIMEOUT)}", Exit.UNAVAILABLE) from None
    if done.returncode:
        error = stack_error(pulumi, name, done.stderr, "the stack cannot be read")
        hint = with_local_cloud("run it in the project's folder, and name the stack: --stack NAME")
        error.hint = error.hint or hint
        raise error
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _bucket(url: str) -> str:
    """Return the bucket of a store's URL, or the path of a folder."""
    parts = urlsplit(url)
    return parts.netloc or parts.path


def _chosen(name: str | None) -> list[str]:
    return ["--stack", name] if name else []
