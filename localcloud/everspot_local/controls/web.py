"""Stands in for the hand of the market, which no real cloud offers: interruptions, droughts and prices on demand.

It is served under `/_market/` of the local endpoint, for tests and the demonstration; the product never calls it.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from everspot_core.records import Market
from werkzeug.exceptions import BadRequest, HTTPException, MethodNotAllowed, NotFound
from werkzeug.wrappers import Request, Response

from everspot_local.controls.actions import Actions
from everspot_local.market.clock import stamp
from everspot_local.world import World

PREFIX = "/_market/"


class Controls:
    """A WSGI application: JSON in, JSON out; 400 with `error` for what cannot be done."""

    def __init__(self, world: World, actions: Actions, reset: Callable[[], None], stop: Callable[[], None]) -> None:
        self._world = world
        self._actions = actions
        self._reset = reset
        self._stop = stop

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """One request."""
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
            raise MethodNotAllowed(["POST"]) if name in (*Actions.NAMES, "reset", "stop") else NotFound()
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
                with self._world.lock:
                    return _json(self._actions.do({"action": name, **body}))
            except (ValueError, KeyError) as error:
                raise BadRequest(str(error.args[0]) if error.args else str(error)) from None
        return _json({})

    def status(self) -> dict[str, Any]:
        """The market's time, the instances and the pools in use."""
        world = self._world
        with world.lock:
            now = world.clock.now()
            instances = [
                {
                    "id": i.id,
                    "type": i.instance_type,
                    "zone": i.availability_zone,
                    "market": i.market.value,
                    "state": i.state,
                    "launched_at": stamp(i.launch_time),
                    "age_seconds": (now - i.launch_time) // timedelta(seconds=1),
                    "action_at": stamp(i.action_at) if i.action_at else None,
                    "fleet": i.fleet_id,
                    "pid": world.machines.pid(i.id),
                    "tags": {t["key"]: t["value"] for t in i.get_tags()},
                }
                for i in world.lifecycle.living()
            ]
            pools = [
                {
                    "pool": p.name,
                    "spot_usd": p.spot_usd,
                    "on_demand_usd": p.on_demand_usd,
                    "available": p.available(Market.SPOT),
                    "used": p.used[Market.SPOT],
                    "dry": Market.SPOT in p.dry_until,
                }
                for p in world.pools
            ]
        return {"now": stamp(now), "time_scale": world.clock.scale, "instances": instances, "pools": pools}


def _json(document: Any, status: int = 200) -> Response:
    return Response(json.dumps(document), status=status, content_type="application/json")
