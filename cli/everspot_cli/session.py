"""What every command starts from: where the store is, which clock runs, and how to answer."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from everspot_core.catalogue import Catalogue, builtin
from everspot_core.manifest import Manifest
from everspot_store import Store, SystemClock
from rich.console import Console

from everspot_cli.errors import CliError, Exit

ENVIRONMENT = "EVERSPOT_STORE"
PULUMI_LIMIT = timedelta(seconds=60)


@dataclass
class Session:
    """One run of the command. `json`: answer with JSON on standard output, and nothing else there."""

    store_option: str | None = None
    stack: str | None = None
    json: bool = False
    console: Console = field(default_factory=lambda: Console(highlight=False))
    errors: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))

    @cached_property
    def clock(self) -> SystemClock:
        """The market's clock."""
        return SystemClock.from_environment()

    @cached_property
    def store_url(self) -> str:
        """From `--store`, EVERSPOT_STORE, or the output `controlUrl` of the Pulumi stack.

        Raises:
            CliError: if none of them tells.
        """
        given = self.store_option or os.environ.get(ENVIRONMENT)
        if self.stack is None and given:
            return given if "://" in given else Path(given).resolve().as_uri()
        return _stack_output(self.stack)

    @cached_property
    def store(self) -> Store:
        """The cluster's store."""
        return Store.open(self.store_url, clock=self.clock)

    @cached_property
    def manifest(self) -> Manifest:
        """The cluster's own description."""
        return self.store.manifest()

    @cached_property
    def catalogue(self) -> Catalogue:
        """Types and prices, those included that the cluster declares in place."""
        return builtin().with_types(self.manifest.instance_types)

    @property
    def now(self) -> datetime:
        """Market time."""
        return self.clock.now()

    def answer(self, value: Any) -> None:
        """Print one JSON document."""
        print(json.dumps(value, indent=2, default=_plain), file=sys.stdout)  # noqa: T201 - the answer itself

    def answer_line(self, value: Any) -> None:
        """Print one JSON document on a line of its own: for answers that go on."""
        print(json.dumps(value, default=_plain), file=sys.stdout, flush=True)  # noqa: T201 - the answer itself

    def scale_note(self) -> str:
        """What to say beside durations when the market's time is not the machine's."""
        return (
            ""
            if self.clock.scale == 1
            else f"Times and dollars are market time, {self.clock.scale:g} times as fast as real time."
        )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise TypeError(f"{type(value).__name__} has no place in an answer")


def _stack_output(stack: str | None) -> str:
    ways = f"give --store URL, set {ENVIRONMENT}, or run it where `pulumi stack output controlUrl` answers"
    pulumi = shutil.which("pulumi")
    if pulumi is None:
        raise CliError("no store is given, and there is no pulumi to ask", Exit.UNAVAILABLE, hint=ways)
    command = [pulumi, "stack", "output", "controlUrl", "--non-interactive", *(["--stack", stack] if stack else [])]
    try:
        done = subprocess.run(  # noqa: S603 - our own words, no shell
            command, capture_output=True, text=True, check=False, timeout=PULUMI_LIMIT.total_seconds()
        )
    except subprocess.TimeoutExpired:
        raise CliError(f"pulumi did not answer within {PULUMI_LIMIT}", Exit.UNAVAILABLE, hint=ways) from None
    if done.returncode or not done.stdout.strip():
        said = (done.stderr.strip().splitlines() or ["it has no output controlUrl"])[-1]
        raise CliError(f"no store is given, and pulumi says: {said}", Exit.UNAVAILABLE, hint=ways)
    return done.stdout.strip()
