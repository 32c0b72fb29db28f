"""Stands in for AWS on one machine: moto's server with our market, on a port of the loopback interface.

It does not outlive its process: what was made in it is gone when it closes.
"""

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from everspot_core.catalogue import Catalogue, builtin
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from everspot_local import world
from everspot_local.aws import moto_parts
from everspot_local.aws.autoscaling import groups as autoscaling
from everspot_local.aws.imds.service import MetadataServices
from everspot_local.aws.price_list import PriceList
from everspot_local.controls.actions import Actions
from everspot_local.controls.web import PREFIX, Controls
from everspot_local.machines.lifecycle import Lifecycle
from everspot_local.machines.processes import Machines
from everspot_local.world import ACCOUNT, Options, World

HOST = "127.0.0.1"
log = logging.getLogger(__name__)


class QuietHandler(WSGIRequestHandler):
    """Writes no line per request."""

    def log_request(self, *_args: Any) -> None:
        """Say nothing: the journal of calls tells more."""


class LocalCloud:
    """AWS in this process, as a context manager. One at a time in a process, as moto's state is the process's.

    Args:
        options: settings; `state_dir` is made if it is missing.
        port: of the endpoint; 0 takes a free one.
        catalogue: instance types and prices, by default the one that comes with Everspot.
    """

    def __init__(self, options: Options, *, port: int = 0, catalogue: Catalogue | None = None) -> None:
        world.check_free()
        moto_parts.take_moto()
        options.state_dir.mkdir(parents=True, exist_ok=True)
        self.options = options
        self.world = World(options, catalogue or builtin(), moto_parts.zone_ids(options.region))
        world.enter(self.world)
        self.world.machines = Machines(self.world)
        self.world.metadata = MetadataServices(self.world)
        self.world.lifecycle = Lifecycle(self.world)
        self.world.listeners.append(self._replace)
        self.actions = Actions(self.world)
        self.stopping = threading.Event()
        self._server: BaseWSGIServer = make_server(
            HOST, port, self._application(), threaded=True, request_handler=QuietHandler
        )
        self.world.endpoint = self.endpoint
        self._thread = threading.Thread(target=self._server.serve_forever, name="everspot-endpoint", daemon=True)

    @property
    def endpoint(self) -> str:
        """The URL of every service, for `AWS_ENDPOINT_URL`."""
        return f"http://{HOST}:{self._server.server_port}"

    def __enter__(self) -> Self:
        """Begin to answer."""
        self.world.timeline.start()
        self._walk()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every instance's processes, and answer no more."""
        self.close()

    def close(self) -> None:
        """End every instance's processes, and answer no more. Doing it twice changes nothing."""
        if world._current is not self.world:
            return
        self.world.timeline.stop()
        self.world.machines.close()
        self.world.metadata.close_all()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self.world.log.close()
        self.world.calls.close()
        moto_parts.give_moto_back()
        world.enter(None)

    def reset(self) -> None:
        """An empty account and a fresh market, without instances; the endpoint and the clock stay."""
        with self.world.lock:
            self.world.timeline.clear()
            self.world.machines.close()
            self.world.metadata.reset()
            self.world.lifecycle = Lifecycle(self.world)
            moto_parts.empty_moto()
            self.world.refill()
            self._walk()

    def do(self, action: str, **fields: Any) -> dict[str, Any]:
        """One market action, as under `/_market/`.

        Raises:
            ValueError: for a field or value that is unknown.
            KeyError: for an instance that is not running.
        """
        with self.world.lock:
            return self.actions.do({"action": action, **fields})

    def _application(self) -> Callable[..., Any]:
        services = DomainDispatcherApplication(create_backend_app)
        price_list = PriceList(self.world)
        controls = Controls(self.world, self.actions, self.reset, self.stopping.set)

        def application(environ: dict[str, Any], start_response: Any) -> Any:
            if environ.get("PATH_INFO", "").startswith(PREFIX):
                return controls(environ, start_response)
            if price_list.wants(environ):
                return price_list(environ, start_response)
            return services(environ, start_response)

        return application

    def _replace(self, instance: Any, _cause: str) -> None:
        """Tell the fleet or group of an instance that it came to an end."""
        fleet = instance.ec2_backend.fleets.get(instance.fleet_id) if instance.fleet_id else None
        if fleet is not None:
            fleet.member_ended(instance.id)
        autoscaling.member_ended(self.world, instance.id)

    def _walk(self) -> None:
        def step() -> None:
            self._walk()  # first: a step that fails must not be the last
            self.world.pools.walk(self.world.clock.now())

        self.world.timeline.after(self.options.delays.walk, step)


def account() -> str:
    """The only account's id."""
    return ACCOUNT
