"""A server on loopback for the duration of a test."""

import threading
from socketserver import BaseServer
from typing import Self


class Loopback:
    """Answers requests in a thread of its own while its context lasts."""

    def __init__(self, server: BaseServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
