"""A job's set-up commands."""

import sys
from collections.abc import Mapping, Sequence

from everspot_train.prepare.errors import NotReady
from everspot_train.prepare.scrub import run_scrubbed

BASH = ("/bin/bash", "-euo", "pipefail", "-c")


def run_setup(commands: Sequence[str], environment: Mapping[str, str], secrets: Sequence[str]) -> None:
    """Run each command in the current folder. Its output goes to the job's log, without the secrets.

    Raises:
        NotReady: if a command fails.
    """
    for command in commands:
        sys.stdout.write(f"everspot: setup: {command}\n")
        sys.stdout.flush()
        code = run_scrubbed([*BASH, command], dict(environment), secrets)
        if code:
            raise NotReady(f"setup: `{command}` exited with {code}")
