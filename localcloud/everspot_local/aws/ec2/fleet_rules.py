"""Holds CreateFleet to its client token, and DeleteFleets to the number of fleets that one call may name."""

import json
from typing import Any

from moto.ec2.exceptions import EC2ClientError

from everspot_local.aws.ec2.exceptions import InvalidParameter
from everspot_local.aws.strict import strict

MOST_DELETED = {True: 25, False: 100}
"""Fleets that one DeleteFleets may name, `instant` ones and others (API reference, DeleteFleets)."""


class TokenReused(EC2ClientError):
    """A client token was sent before with other parameters."""

    def __init__(self) -> None:
        super().__init__(
            "IdempotentParameterMismatch",
            "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
        )


class Tokens:
    """The fleets that were made, by client token.

    EC2 Developer Guide, "Ensuring idempotency in Amazon EC2 API requests": the same token with the same parameters
    succeeds and does nothing more; with others it fails. A request that was refused made nothing, and its token is
    free; a fleet that was made and got no instance is a success, and its token is used up: as met
    (https://github.com/runs-on/runs-on/issues/251). How long a token is kept AWS says of RunInstances alone; here it is
    kept for good.
    """

    def __init__(self) -> None:
        self._fleets: dict[str, tuple[str, Any]] = {}

    def find(self, request: dict[str, Any]) -> Any | None:
        """Return the fleet that an earlier request with this token made, or None.

        Raises:
            TokenReused: if the request of that token was another.
        """
        entry = self._fleets.get(str(request.get("ClientToken") or ""))
        if entry is None:
            return None
        if entry[0] != _fingerprint(request):
            raise TokenReused
        return entry[1]

    def keep(self, request: dict[str, Any], fleet: Any) -> None:
        """Remember the fleet that a request made."""
        if request.get("ClientToken"):
            self._fleets[str(request["ClientToken"])] = (_fingerprint(request), fleet)


def check_deletion(backend: Any, fleet_ids: list[str]) -> None:
    """Refuse a call that names more fleets than EC2 deletes in one call; none of them is deleted then."""
    instant = sum(1 for i in fleet_ids if (fleet := backend.fleets.get(i)) is not None and fleet.type == "instant")
    for is_instant, count in ((True, instant), (False, len(fleet_ids) - instant)):
        if strict() and count > MOST_DELETED[is_instant]:
            kind = "instant fleets" if is_instant else "fleets"
            raise InvalidParameter(f"You can delete up to {MOST_DELETED[is_instant]} {kind} in a single request.")


def _fingerprint(request: dict[str, Any]) -> str:
    compared = {key: value for key, value in request.items() if key not in ("ClientToken", "DryRun")}
    return json.dumps(compared, sort_keys=True, default=str)
