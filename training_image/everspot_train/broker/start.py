"""The first process of a job's unit, which becomes the job's program. It runs as the job's user.

It is run as a file: `python -I start.py RUN_DIRECTORY [REFUSED_ADDRESS…]`. The agent has written the program's
description into the run directory, because systemd shows a unit's command and environment to every user of the machine.
"""

import json
import os
import socket
import sys
from pathlib import Path

RESOLVERS = Path("/etc/resolv.conf")


def main(run_dir: Path, refused: list[str]) -> None:
    """Read the program's description and execute it. Its output, or the error that prevents its start, goes to the
    job's log."""
    output = os.open(run_dir / "output.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    for address in refused:
        check_refused(address)
    check_resolvers(RESOLVERS, refused)
    file = run_dir / "program.json"
    program = json.loads(file.read_bytes())
    file.unlink()
    os.chdir(program["directory"])
    os.execvpe(program["command"][0], program["command"], program["environment"])  # noqa: S606  the agent's own


def check_refused(address: str) -> None:
    """End with an error if packets can be sent to an address.

    If the kernel has no packet filters for control groups, systemd does not block anything, and reports that only in
    its log.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as packets:
        try:
            packets.sendto(b"", (address, 80))
        except OSError:  # refused, or no route to it
            return
    sys.exit(f"everspot: the metadata address {address} is open to jobs of this machine: the job does not start")


def check_resolvers(file: Path, refused: list[str]) -> None:
    """End with an error if a resolver has a blocked address, because no name could be resolved. A machine without the
    file resolves no names anyway."""
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return
    resolvers = {words[1] for words in lines if words[:1] == ["nameserver"] and len(words) > 1}
    if closed := resolvers & set(refused):
        sys.exit(
            f"everspot: the resolver {min(closed)} has the metadata service's address, which is closed to jobs: bake "
            "the image again, by which systemd resolves names (training_image/bake/resolver.sh)"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
