"""The program `everspot-policy`: the rules as a policy pack of the engine.

`pulumi preview --policy-pack "$(command -v everspot-policy)"` starts it, and ends it. The settings are the file that
EVERSPOT_POLICY_SETTINGS names; without one, every rule has its default level.
"""

import os
import sys
from concurrent import futures
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

import grpc
from everspot_core.validation.problems import BadInputs
from pulumi.runtime.proto import analyzer_pb2_grpc

from everspot_policy.analyzer import Analyzer
from everspot_policy.settings_source import settings

UNBOUND = [("grpc.max_receive_message_length", 400 << 20)]
"""Of the engine's own servers: a stack's resources come in one message."""


def main() -> None:
    """Serve until the engine ends it. Its way of learning the port is a line on standard output."""
    try:
        policy_settings = settings(os.environ)
    except (BadInputs, OSError, UnicodeDecodeError) as bad:
        sys.exit(f"everspot-policy: {bad}")
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), options=UNBOUND)
    analyzer = Analyzer(policy_settings, _version(), lambda: datetime.now(UTC).date())
    analyzer_pb2_grpc.add_AnalyzerServicer_to_server(analyzer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    with suppress(KeyboardInterrupt):  # which is how the engine ends it
        server.wait_for_termination()


def _version() -> str:
    try:
        return version("everspot")
    except PackageNotFoundError:  # run from a folder that was never installed
        return "0.0.0"
