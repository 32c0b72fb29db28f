"""A cloud on one machine: the market, its machines and the cloud's services, on a port of the loopback interface.

The module connects the parts. Nothing outlives the process: all resources are gone when the cloud closes.
"""

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from everspot_clouds.price_files import project_catalogue
from everspot_core.capacity.catalogue import Catalogue
from werkzeug.exceptions import BadRequest, ClientDisconnected
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from everspot_local.body_checks import length_is_none
from everspot_local.controls.actions import Actions
from everspot_local.controls.web import PREFIX, Controls
from everspot_local.market.market import LocalMarket
from everspot_local.market.market_log import Journal
from everspot_local.options import ONE_PRICE, Options
from everspot_local.providers import abroad, open_provider, quotas

log = logging.getLogger(__name__)
HOST = "127.0.0.1"


class Handler(WSGIRequestHandler):
    """A request handler that answers in one piece, and writes no log line: the journal of calls has more.

    In one piece, as AWS's SDK for Go drops an answer of which it has got the headers alone while it is still about to
    look whether its request's body has more, and then makes the call again (smithy-go 1.26, `safeWriteToReadCloser`:
    once the SDK has closed the body, that look is an error to net/http, which closes the connection). No answer over a
    network comes that soon; one on the same machine does, once in some hundred calls.
    """

    wbufsize = 1 << 20  # bytes; larger answers are to questions, which may be asked again

    def make_environ(self) -> dict[str, Any]:
        """Return the request's WSGI environment. A caller that waits for "100 Continue", which is written by then, gets
        it before the request's body is read."""
        self.wfile.flush()
        return super().make_environ()

    def finish(self) -> None:
        """Close the connection, also that of a caller who has gone before the last bytes were written."""
        try:
            super().finish()
        except ConnectionError as error:
            self.rfile.close()
            self.connection_dropped(error)

    def log_request(self, *_args: Any) -> None:
        """Do nothing: the journal of calls has more."""

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
        """Write down a request whose caller got no whole answer, and may make it a second time."""
        log.warning("no whole answer to %s: %r", getattr(self, "requestline", "a caller"), error)


class LocalCloud:
    """A cloud in this process, as a context manager. One at a time in a process.

    `provider`: the cloud, AWS or Google Cloud, that the options name.

    Args:
        options: settings; `state_dir` is made if it is missing.
        port: of the endpoint; 0 takes a free one.
        catalogue: instance types and prices, by default those that come with Everspot and, before them, those of the
            price tables of the project around the working directory.

    Raises:
        RuntimeError: if this process already has a cloud of a kind that allows one per process.
    """

    def __init__(self, options: Options, *, port: int = 0, catalogue: Catalogue | None = None) -> None:
        self.provider = open_provider(options)
        options.state_dir.mkdir(parents=True, exist_ok=True)
        self.options = options
        self.market = LocalMarket(
            catalogue or project_catalogue(),
            options.region,
            self.provider.zone_ids(options.region),
            lambda: quotas(options.cloud, options.quotas),
            options.state_dir / "market.jsonl",
            scale=options.scale,
            seed=options.seed,
            delays=options.times,
            disturbances=options.rates,
            one_price=ONE_PRICE[options.cloud],
            epoch=options.epoch,
        )
        self.provider.join(self.market)
        self.machines = self.provider.machines
        self.actions = Actions(self.market, self.machines)
        self.stopping = threading.Event()
        self._closed = False
        self._server: BaseWSGIServer = make_server(
            HOST, port, self._application(), threaded=True, request_handler=Handler
        )
        self.provider.answer_at(self.endpoint)
        self._thread = threading.Thread(target=self._server.serve_forever, name="everspot-endpoint", daemon=True)

    @property
    def account(self) -> Any:
        """Return the account of a local AWS."""
        return self.provider.account  # type: ignore[attr-defined]

    @property
    def project(self) -> Any:
        """Return the project of a local Google Cloud."""
        return self.provider.project  # type: ignore[attr-defined]

    @property
    def calls(self) -> Journal:
        """Return the journal of the calls to the services."""
        return self.provider.calls

    @property
    def endpoint(self) -> str:
        """Return the URL at which all services answer, and the controls."""
        return f"http://{HOST}:{self._server.server_port}"

    def __enter__(self) -> Self:
        """Begin to answer requests."""
        self.market.open()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every instance's processes and stop answering."""
        self.close()

    def close(self) -> None:
        """End every instance's processes and stop answering. A second call changes nothing."""
        if self._closed:
            return
        self._closed = True
        self.market.timeline.stop()
        self.machines.processes.close()
        self.machines.trees.clear()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self.market.log.close()
        self.provider.close()

    def reset(self) -> None:
        """Delete everything that was made and open a fresh market without instances; endpoint and clock stay."""
        with self.market.lock:
            self.market.timeline.clear()
            self.provider.reset()
            self.market.reset()

    def meet(self, cloud: str, endpoint: str) -> None:
        """Trust another local cloud's identities, and let machines that boot from now on find it.

        Raises:
            ValueError: if there is no such cloud, or that is no local endpoint.
        """
        self.machines.second_cloud.meet(endpoint, abroad(cloud, endpoint))

    def do(self, action: str, **fields: Any) -> dict[str, Any]:
        """Carry out one market action, as under `/_market/`.

        Raises:
            ValueError: for a field or value that is unknown.
            KeyError: for an instance that is not running.
        """
        with self.market.lock:
            return self.actions.do({"action": action, **fields})

    def _application(self) -> Callable[..., Any]:
        services = self.provider.application()
        controls = Controls(self.market, self.machines, self.actions, self.reset, self.stopping.set, self.meet)

        def application(environ: dict[str, Any], start_response: Any) -> Any:
            if length_is_none(environ):
                return BadRequest("Content-Length is no length.")(environ, start_response)
            controlled = environ.get("PATH_INFO", "").startswith(PREFIX)
            try:
                return (controls if controlled else services)(environ, start_response)
            except ClientDisconnected:
                return BadRequest("The body ended before its length.")(environ, start_response)

        return application
