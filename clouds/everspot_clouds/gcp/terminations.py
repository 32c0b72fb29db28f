"""Ends instances by deleting them, one call each: Compute Engine has no call for many."""

import logging
from collections.abc import Iterable, Mapping

from everspot_clouds.base import Trouble
from everspot_clouds.gcp import errors
from everspot_clouds.gcp.errors import ApiError
from everspot_clouds.gcp.http_api import Api
from everspot_clouds.gcp.instances import Whereabouts

RETRYABLE = (Trouble.THROTTLED, Trouble.TRANSIENT)
"""Passing failures of a whole request. After one it is not known whether the request was carried out."""
DENIED_AT_MOST = 3
"""After so many refusals, and nothing else, the caller counts as not allowed to end any."""
_log = logging.getLogger(__name__)


def delete(api: Api, place: Whereabouts) -> None:
    """Delete an instance. A missing instance is no failure. Raises the errors of `Api`."""
    try:
        api.call("DELETE", "compute", f"projects/{api.project}/zones/{place.zone}/instances/{place.name}")
    except ApiError as error:
        if not error.missing:
            raise
        _log.info("%s is gone already", place.name)


def terminate(
    api: Api, ids: Iterable[str], places: Mapping[str, Whereabouts], unreachable: ApiError | None = None
) -> None:
    """See `Cloud.terminate`.

    Args:
        api: The calls.
        ids: Of the instances to end.
        places: Of all instances that are described.
        unreachable: The error if a part of the region cannot be reached. Otherwise an instance that is not described
            has ended.

    Raises:
        ApiError: the first refusal, after all other instances were requested; a transient failure is raised
            immediately; `unreachable`, if nothing was refused and an instance is not described.
    """
    failed, ended = list[ApiError](), 0
    names = list(dict.fromkeys(ids))
    for tried, name in enumerate(names, 1):
        place = places.get(name)
        if place is None:
            if unreachable is None:
                _log.info("%s is not described any more: there is nothing to end", name)
            continue
        try:
            delete(api, place)
            ended += 1
        except ApiError as error:
            if errors.trouble(error) in RETRYABLE:
                raise
            _log.error("%s (%s) cannot be ended: %s", name, place.name, error)
            failed.append(error)
            if not ended and _denied(failed) and tried < len(names):
                _log.error("this role may end no instance: %d more are not tried", len(names) - tried)
                break
    if failed:
        raise failed[0]
    if unreachable is not None and any(name not in places for name in names):
        raise unreachable


def _denied(failed: list[ApiError]) -> bool:
    kinds = {errors.trouble(error) for error in failed}
    return len(failed) >= DENIED_AT_MOST and kinds == {Trouble.CREDENTIALS}
