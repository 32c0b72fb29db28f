"""The market's controls, which no real cloud offers: interruptions, droughts and prices on demand.

It is served under `/_market/` of the local endpoint, for tests and the demonstration; the product never calls it.
"""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from everspot_core.jobs.records import Market
from werkzeug.exceptions import BadRequest, HTTPException, MethodNotAllowed, NotFound
from werkzeug.wrappers import Request, Response

from everspot_local.controls.actions import Actions
from everspot_local.machines.lifecycle import Machines
from everspot_local.machines.machine import Machine
from everspot_local.market.clock import stamp
from everspot_local.market.market import LocalMarket

PREFIX = "/_market/"


class Controls:
    """A WSGI application with JSON requests and answers; what is impossible is answered with 400 and `error`."""

    def __init__(
        self,
        market: LocalMarket,
        machines: Machines,
        actions: Actions,
        reset: Callable[[], None],
        stop: Callable[[], None],
        meet: Callable[..., None],
    ) -> None:
        self._market = market
        self._machines = machines
        self._actions = actions
        self._reset = reset
        self._stop = stop
        self._meet = meet

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Answer one request."""
        try:
            response = self._answer(Request(environ))
        except HTTPException as error:
            response = _json({"error": error.description}, error.code or 400)
        return response(environ, start_response)

    def _answer(self, request: Request) -> Response:
        name = request.path.removeprefix(PREFIX).strip("/")
        if name == "status":
            return _json(self.status())
        if request.method != "POST":
            raise MethodNotAllowed(["POST"]) if name in (*Actions.NAMES, "reset", "stop", "meet") else NotFound()
        try:
            body = json.loads(request.get_data() or b"{}")
        except ValueError as error:
            raise BadRequest(f"the body is not JSON: {error}") from None
        if name == "reset":
            self._reset()
        elif name == "stop":
            self._stop()
        else:
            try:
                if name == "meet":
                    self._introduce(body)
                    return _json({})
                with self._market.lock:
                    return _json(self._actions.do({"action": name, **body}))
            except (ValueError, KeyError) as error:
                raise BadRequest(str(error.args[0]) if error.args else str(error)) from None
        return _json({})

    def _introduce(self, body: Any) -> None:
        fields = {"cloud", "endpoint"}
        if not isinstance(body, dict) or set(body) != fields or not all(isinstance(v, str) for v in body.values()):
            raise ValueError(f"meet: the body has to have {' and '.join(sorted(fields))}, and nothing else")
        self._meet(**body)

    def status(self) -> dict[str, Any]:
        """Return the market's time, the living machines, the pools in use, and how often services were disturbed."""
        market = self._market
        with market.lock:
            now = market.clock.now()
            instances = [self._described(machine, now) for machine in self._machines.living()]
            pools = [
                {
                    "pool": p.name,
                    "spot_usd": p.spot_usd,
                    "on_demand_usd": p.on_demand_usd,
                    "available": p.available(Market.SPOT),
                    "used": p.used[Market.SPOT],
                    "dry": Market.SPOT in p.dry_until,
                    "on_demand_dry": Market.ON_DEMAND in p.dry_until,
                }
                for p in market.pools
            ]
            disturbances = dict(market.disturbances.counts)
        return {
            "now": stamp(now),
            "time_scale": market.clock.scale,
            "instances": instances,
            "pools": pools,
            "disturbances": disturbances,
        }

    def _described(self, machine: Machine, now: datetime) -> dict[str, Any]:
        return {
            "id": machine.id,
            "type": machine.pool.instance_type,
            "zone": machine.pool.zone,
            "market": machine.market.value,
            "state": machine.phase.value,
            "launched_at": stamp(machine.launched_at),
            "age_seconds": (now - machine.launched_at) // timedelta(seconds=1),
            "action_at": stamp(machine.reclaim_at) if machine.reclaim_at else None,
            "fleet": machine.fleet,
            "pid": self._machines.processes.pid(machine.id),
            "tags": machine.instance.labels(),
        }


def _json(document: Any, status: int = 200) -> Response:
    return Response(json.dumps(document), status=status, content_type="application/json")
