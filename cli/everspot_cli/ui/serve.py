"""Serves the web UI on this machine's own address until Ctrl-C."""

import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import NoReturn

import uvicorn
from starlette.types import ASGIApp

from everspot_cli.errors import CliError, Exit
from everspot_cli.ui.loopback import ADDRESS


def bind_socket(port: int) -> socket.socket:
    """Return a socket on this machine's own address that listens on a port, or with 0 on a free one.

    Raises:
        CliError: if the port is taken, or not for this user.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, port))
        listener.listen()
    except OSError as error:
        listener.close()
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise CliError(f"port {port} cannot be used: {reason}", hint="without --port a free one is taken") from None
    return listener


def serve(app: ASGIApp, listener: socket.socket, ended: Callable[[], None]) -> NoReturn:
    """Serve until Ctrl-C, call `ended`, and then end the program immediately."""
    config = uvicorn.Config(
        app, loop="asyncio", http="h11", ws="none", lifespan="off", log_config=None, access_log=False,
        server_header=False, timeout_graceful_shutdown=1,
    )  # fmt: skip
    # A shell without job control has what runs in its background ignore the signal. The server hears it all the same,
    # and hands it on when it has ended.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = Exit.OK
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    ended()
    sys.stdout.flush()
    sys.stderr.flush()
    # Python would wait for the threads of a reading, and they for a store that perhaps does not answer. Nothing is
    # left to be done: what a thread writes is one conditional write, which is in effect or is not.
    os._exit(int(code))
