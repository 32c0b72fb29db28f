"""Stands in for an official provider plugin, which is that same upstream provider wrapped, where it cannot be had.

`EVERSPOT_BRIDGE_PROVIDER` names the provider, by a module of `providers`.

It serves Pulumi's provider protocol in front of the real upstream provider binary and knows names, nothing else.
What it does not do: component resources, provider methods (`Call`), functions and documentation in the package schema,
parameterization, cross-provider state moves, archives as inputs, and the properties that official plugins add by
hand (callback functions, helpers for one resource in other languages); services that the upstream binary was built
without are refused by name.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

from everspot_local.bridge import providers
from everspot_local.bridge.provider import Provider
from everspot_local.bridge.resources import ProviderResources
from everspot_local.bridge.sdk import Sdk
from everspot_local.bridge.upstream import MAX_MESSAGE_BYTES, BridgeError, Upstream

# The engine runs up to this many operations in parallel, and an upstream wait takes minutes.
WORKERS = 128
ORPHAN_CHECK_SECONDS = 1.0


def toolchain() -> Path:
    """Return the folder that holds `bin/` and `stubs/`."""
    return Path(os.environ.get("EVERSPOT_TOOLCHAIN", ".everspot/toolchain")).absolute()


def leave_with_parent(parent: int) -> None:
    """End this process when the engine is gone without having said so."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_CHECK_SECONDS)
    os._exit(1)


def main() -> int:
    """Serve until the engine ends this process; print the port first, as the engine expects."""
    sink = os.environ.get("EVERSPOT_BRIDGE_LOG")
    if sink:
        logging.basicConfig(filename=sink, level=logging.DEBUG, format="%(asctime)s %(process)d %(name)s %(message)s")
        faulthandler.enable(file=sys.stderr)
    parent = os.getppid()
    tools = toolchain()
    title = "the provider bridge"
    try:
        table = providers.table(os.environ.get("EVERSPOT_BRIDGE_PROVIDER", providers.USUAL))
        title = table.plugin
        made_by = f"make setup CLOUD={table.package}"
        upstream = Upstream(tools / "bin" / table.binary, tools / "stubs", table.proxied, made_by)
        resources = ProviderResources(upstream, Sdk(table.sdk), table)
    except (BridgeError, LookupError) as error:
        sys.stderr.write(f"{title}: {error}\n")
        return 1
    threading.Thread(target=leave_with_parent, args=(parent,), daemon=True).start()
    limits = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.max_send_message_length", -1)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=WORKERS), options=limits)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Provider(resources), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop(grace=None))
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    server.wait_for_termination()
    upstream.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
