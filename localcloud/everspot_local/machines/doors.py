"""Forwards TCP connections into and out of a machine's network namespace."""

import contextlib
import shutil
import socket
import subprocess
import threading
from collections.abc import Mapping

from everspot_local.machines import namespaces

METADATA = ("169.254.169.254", 80)

Address = tuple[str, int]


def open_network(doors: Mapping[Address, Address]) -> list[tuple[socket.socket, Address]]:
    """Give this process a network of its own with nothing in it but these doors; return their listeners.

    Raises:
        OSError: if the kernel refuses.
        subprocess.CalledProcessError: if `ip` does.
    """
    namespaces.unshare(namespaces.NEWNET)
    _ip("link", "set", "lo", "up")
    for host in {host for host, _ in doors} - {"127.0.0.1"}:
        _ip("address", "add", f"{host}/32", "dev", "lo")
    return [(socket.create_server(inside, backlog=64), outside) for inside, outside in doors.items()]


def _ip(*words: str) -> None:
    ip = shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if ip is None:
        raise OSError("there is no `ip` on this machine: install iproute2")
    subprocess.run([ip, *words], check=True)  # noqa: S603


def carry(listener: socket.socket, outside: Address) -> None:
    """Carry each connection of a listener to an address, until the listener closes."""
    with contextlib.suppress(OSError):
        while True:
            inner, _ = listener.accept()
            try:
                outer = socket.create_connection(outside)
            except OSError:
                inner.close()
                continue
            for source, sink in ((inner, outer), (outer, inner)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def carry_inside(listener: socket.socket, inside: Address, network: int) -> None:
    """Carry each connection of a listener to an address of another network, until the listener closes.

    `network`: an open file of its namespace, which this thread enters.
    """
    namespaces.enter(network, namespaces.NEWNET)
    carry(listener, inside)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy one direction. Both ends stay open until both directions are done, as half-closed connections need."""
    try:
        while data := source.recv(1 << 18):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:  # one side is gone: close the other immediately
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
