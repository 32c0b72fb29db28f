"""Sets up the watchers of a scheduler by its command line or manifest: Prometheus, at an address of this machine."""

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network

from everspot_core.cluster.manifest import METRICS_PORT, Metrics

from everspot_scheduler.watch.watch import Watcher

LOOPBACK = str(IPv4Network("127.0.0.0/8")[1])
METRICS = f"{LOOPBACK}:{METRICS_PORT}"
"""The default address. Only this machine can reach it, so the instance's security group stays closed."""
EVERYWHERE = str(IPv4Address(0))
OFF = "off"
_log = logging.getLogger(__name__)


def address(text: str) -> tuple[str, int] | None:
    """Return the host and port of `HOST:PORT`, `[HOST]:PORT` or `PORT`; None for `off`.

    Raises:
        argparse.ArgumentTypeError: if the text has another form.
    """
    if text == OFF:
        return None
    host, _, port = text.rpartition(":")
    host = (host or LOOPBACK).removeprefix("[").removesuffix("]")
    if not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is neither HOST:PORT, such as {METRICS}, nor a port, nor {OFF}")
    return host, int(port)


def usual(metrics: Metrics | None) -> tuple[str, int]:
    """Return the host and port by the manifest, for a command line that names none."""
    return (LOOPBACK, METRICS_PORT) if metrics is None else (EVERYWHERE, metrics.port)


@contextmanager
def watchers(where: tuple[str, int] | None) -> Iterator[list[Watcher]]:
    """Yield the watchers while the block lasts. If the address cannot be used, the list is empty, and the scheduler
    runs on."""
    if where is None:
        yield []
        return
    try:
        from everspot_scheduler.watch.prometheus import PrometheusWatcher
    except ImportError as error:
        _log.warning("no metrics: %s (it comes with everspot[scheduler])", error)
        yield []
        return
    watcher = PrometheusWatcher()
    try:
        server, thread = watcher.serve(*where)
    except OSError as error:  # such as another scheduler on the same machine
        _log.warning("no metrics at %s:%d: %s", *where, error)
        yield []
        return
    try:
        yield [watcher]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
