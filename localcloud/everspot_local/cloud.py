"""AWS on one machine: the market and its machines with moto's server before them, on a port of the loopback interface.

This is where the parts are put together. Nothing outlives its process: what was made in it is gone when it closes.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from everspot_core.catalogue import Catalogue, builtin
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from everspot_local.aws import account, moto_parts
from everspot_local.aws.assembly import assemble, services
from everspot_local.aws.quotas import account_quotas
from everspot_local.controls.actions import Actions
from everspot_local.controls.web import PREFIX, Controls
from everspot_local.market.market import LocalMarket
from everspot_local.options import Options

HOST = "127.0.0.1"


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
        account.check_free()
        moto_parts.take_moto()
        options.state_dir.mkdir(parents=True, exist_ok=True)
        self.options = options
        self.market = LocalMarket(
            catalogue or builtin(),
            options.region,
            moto_parts.zone_ids(options.region),
            lambda: account_quotas(options.quotas),
            options.state_dir / "market.jsonl",
            scale=options.scale,
            seed=options.seed,
            delays=options.delays,
        )
        self.account = assemble(options, self.market)
        self.machines = self.account.machines
        account.enter(self.account)
        self.actions = Actions(self.market, self.machines)
        self.stopping = threading.Event()
        self._server: BaseWSGIServer = make_server(
            HOST, port, self._application(), threaded=True, request_handler=QuietHandler
        )
        self.account.endpoint = self.endpoint
        self._thread = threading.Thread(target=self._server.serve_forever, name="everspot-endpoint", daemon=True)

    @property
    def endpoint(self) -> str:
        """The URL of every service, for `AWS_ENDPOINT_URL`."""
        return f"http://{HOST}:{self._server.server_port}"

    def __enter__(self) -> Self:
        """Begin to answer."""
        self.market.open()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every instance's processes, and answer no more."""
        self.close()

    def close(self) -> None:
        """End every instance's processes, and answer no more. Doing it twice changes nothing."""
        if not account.is_current(self.account):
            return
        self.market.timeline.stop()
        self.machines.processes.close()
        self.account.metadata.close_all()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self.market.log.close()
        self.account.calls.close()
        moto_parts.give_moto_back()
        account.enter(None)

    def reset(self) -> None:
        """Empty the account and open a fresh market, without instances; the endpoint and the clock stay."""
        with self.market.lock:
            self.market.timeline.clear()
            self.account.reset()
            moto_parts.empty_moto()
            self.market.reset()

    def do(self, action: str, **fields: Any) -> dict[str, Any]:
        """Carry out one market action, as under `/_market/`.

        Raises:
            ValueError: for a field or value that is unknown.
            KeyError: for an instance that is not running.
        """
        with self.market.lock:
            return self.actions.do({"action": action, **fields})

    def _application(self) -> Callable[..., Any]:
        aws = services(self.account)
        controls = Controls(self.market, self.machines, self.actions, self.reset, self.stopping.set)

        def application(environ: dict[str, Any], start_response: Any) -> Any:
            controlled = environ.get("PATH_INFO", "").startswith(PREFIX)
            return (controls if controlled else aws)(environ, start_response)

        return application
