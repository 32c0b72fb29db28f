"""Runs a command that dies with the agent: `python -I leash.py AGENT_PID command …`, executed as a file.

The kernel sends SIGTERM to this process when the thread that started it ends, and keeps that across exec. It is done
here and not between fork and exec of the agent, because the agent has threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Tie this process to its parent, then become the command."""
    parent, command = int(arguments[0]), arguments[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit("the agent died before its training process began")
    os.execvp(command[0], command)  # noqa: S606  the command is the agent's own


if __name__ == "__main__":
    main(sys.argv[1:])
