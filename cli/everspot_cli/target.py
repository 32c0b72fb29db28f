"""Chooses the cluster that a command talks to."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from everspot_cli import userconfig
from everspot_cli.errors import CliError, Exit
from everspot_cli.local_cloud_hints import with_local_cloud

STORE = "EVERSPOT_STORE"
CLUSTER = "EVERSPOT_CLUSTER"
PULUMI_LIMIT = timedelta(seconds=60)
_WAYS = (
    f"choose a cluster with `everspot cluster use NAME --store URL`, give --store URL, set {STORE}, "
    "or run it where `pulumi stack output controlUrl` answers"
)


@dataclass(frozen=True)
class Target:
    """The location of the cluster's control bucket. `source`: what named it, for people; `profile`: the cloud's, if
    any."""

    url: str
    source: str
    profile: str | None = None


def choose(store: str | None, cluster: str | None, stack: str | None) -> Target:
    """Return the cluster of the options, else of the environment, else the current one, else of this folder's Pulumi
    stack.

    Raises:
        CliError: if more than one option is given, or nothing names a cluster.
    """
    _refuse_several(store, cluster, stack)
    if stack:
        return Target(_stack_output(stack), f"stack {stack}")
    return choose_without_stack(store, cluster) or Target(_stack_output(None), "this folder's Pulumi stack")


def choose_without_stack(store: str | None, cluster: str | None) -> Target | None:
    """Return the cluster of the options, else of the environment, else the current one. None if nothing names one, so
    that this folder's Pulumi stack would be asked.

    Raises:
        CliError: if both options are given, or a cluster is named that the user's file does not have.
    """
    return choose_by_option(store, cluster) or _choose_by_environment()


def choose_by_option(store: str | None, cluster: str | None) -> Target | None:
    """Return the cluster of the option `--store` or `--cluster`, or None. Raises as `choose_without_stack`."""
    _refuse_several(store, cluster, None)
    if store:
        return Target(as_url(store), "--store")
    return find_cluster(cluster, "--cluster") if cluster else None


def _refuse_several(store: str | None, cluster: str | None, stack: str | None) -> None:
    options = [name for name, value in (("--store", store), ("--cluster", cluster), ("--stack", stack)) if value]
    if len(options) > 1:
        raise CliError(f"{' and '.join(options)} each name a cluster: give one of them", Exit.USAGE)


def _choose_by_environment() -> Target | None:
    """Return the cluster of the environment, else the current one, or None."""
    if os.environ.get(STORE):
        return Target(as_url(os.environ[STORE]), STORE)
    if os.environ.get(CLUSTER):
        return find_cluster(os.environ[CLUSTER], CLUSTER)
    current = userconfig.load().current
    return find_cluster(current, "everspot cluster use") if current else None


def as_url(location: str) -> str:
    """Return a store's URL. A plain path becomes the URL of a folder."""
    return location if "://" in location else Path(location).resolve().as_uri()


def find_cluster(name: str, source: str) -> Target:
    """Return the cluster that the user's file has under a name.

    Raises:
        CliError: if the file has no such name.
    """
    clusters = userconfig.load().clusters
    if name not in clusters:
        names = f"known are: {', '.join(sorted(clusters))}" if clusters else "none is known yet"
        hint = f"`everspot cluster use {name} --store URL` notes it"
        raise CliError(f"{source}: no cluster is known as {name!r}; {names}", Exit.NOT_FOUND, hint=hint)
    return Target(clusters[name].store, source, clusters[name].profile)


def stack_error(pulumi: str, stack: str | None, stderr: str, otherwise: str) -> CliError:
    """Return the error for `pulumi` not answering about a stack, with the last line of its output.

    If the stack does not exist, the error lists the existing stacks. `otherwise`: the words before any other message of
    `pulumi`.
    """
    last_line = (stderr.strip().splitlines() or ["nothing"])[-1].removeprefix("error: ")
    if stack is None or not last_line.startswith("no stack named"):
        return CliError(f"{otherwise}; pulumi says: {last_line}", Exit.UNAVAILABLE)
    names = _stacks(pulumi)
    existing = f"there are: {', '.join(names)}" if names else "this folder's project has none"
    return CliError(f"there is no stack {stack}; {existing}", Exit.NOT_FOUND, hint="--stack NAME names one of them")


def _stacks(pulumi: str) -> list[str]:
    """Return the stacks of the project in this folder; empty if Pulumi does not answer."""
    listing = _run_pulumi([pulumi, "stack", "ls", "--json", "--non-interactive"])
    try:
        return sorted(str(row["name"]) for row in json.loads(listing.stdout)) if not listing.returncode else []
    except (ValueError, TypeError, KeyError):
        return []


def _run_pulumi(command: list[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(  # noqa: S603 - our own words, no shell
            command, capture_output=True, text=True, check=False, timeout=PULUMI_LIMIT.total_seconds()
        )
    except subprocess.TimeoutExpired:
        raise CliError(
            f"pulumi did not answer within {PULUMI_LIMIT.total_seconds():.0f}s",
            Exit.UNAVAILABLE,
            hint=with_local_cloud(_WAYS),
        ) from None


def _stack_output(stack: str | None) -> str:
    pulumi = shutil.which("pulumi")
    if pulumi is None:
        raise CliError(
            "no cluster is chosen, and there is no pulumi to ask", Exit.UNAVAILABLE, hint=with_local_cloud(_WAYS)
        )
    done = _run_pulumi(
        [pulumi, "stack", "output", "controlUrl", "--non-interactive", *(["--stack", stack] if stack else [])]
    )
    if done.returncode or not done.stdout.strip():
        problem = f"the stack {stack} names no cluster" if stack else "no cluster is chosen"
        error = stack_error(pulumi, stack, done.stderr or "it has no output controlUrl", problem)
        error.hint = error.hint or with_local_cloud(_WAYS)
        raise error
    return done.stdout.strip()
