"""Runs a command with a parent-death signal, so that it ends when the agent ends.

It is run as a file: `python -I parent_death_signal.py AGENT_PID GROUP NICENESS command …`. GROUP is the control group
for the command, or `-` for none; NICENESS is added to the agent's own.

The kernel sends SIGTERM to this process when the thread that started it ends, and the setting survives exec. The signal
is set here and not between fork and exec of the agent, because the agent has threads.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Ask the kernel for the parent-death signal, then become the command."""
    parent, group, niceness, command = int(arguments[0]), arguments[1], int(arguments[2]), arguments[3:]
    if group != "-":
        try:
            Path(group, "cgroup.procs").write_text("0")  # the writer
        except OSError as error:  # remaining processes are found in other ways
            sys.stderr.write(f"everspot: not in its control group: {error}\n")
    if niceness:
        os.nice(niceness)
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit("the agent died before its training process began")
    os.execvp(command[0], command)  # noqa: S606  the command is the agent's own


if __name__ == "__main__":
    main(sys.argv[1:])
