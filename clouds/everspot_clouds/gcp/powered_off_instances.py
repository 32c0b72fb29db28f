"""Deletes launched instances that have only been switched off.

Compute Engine has no shutdown that terminates. An instance may power itself off because its agent did not report, or
could not request its deletion. The instance then stays, with its disks, which are billed. Groups replace such
instances; instances that a scheduler launched are deleted by the scheduler alone.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import requests
from google.auth.exceptions import GoogleAuthError

from everspot_clouds.gcp.errors import ApiError
from everspot_clouds.gcp.http_api import Api
from everspot_clouds.gcp.instances import Whereabouts, last
from everspot_clouds.gcp.rules import LAUNCH_LABEL
from everspot_clouds.gcp.terminations import delete

_OFF = ("TERMINATED", "STOPPED")
log = logging.getLogger(__name__)


class PoweredOffInstances:
    """Requests the deletion of each instance once. A request that is refused or gets no answer is repeated at the next
    look."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._requested: set[str] = set()
        self._refused: str | None = None

    def look(self, instances: Iterable[Mapping[str, Any]]) -> None:
        """Delete those of these instances, given in the form of the API, that are switched off. What fails is only
        logged."""
        switched_off = {
            str(raw["id"]): Whereabouts(last(raw["zone"]), str(raw["name"]))
            for raw in instances
            if raw.get("status") in _OFF and LAUNCH_LABEL in (raw.get("labels") or {})
        }
        self._requested &= switched_off.keys()
        for name, place in switched_off.items():
            if name in self._requested:
                continue
            try:
                delete(self._api, place)
            except (ApiError, requests.RequestException, GoogleAuthError) as error:
                if str(error) != self._refused:  # once, and not at every look
                    log.warning("%s is switched off and cannot be deleted: %s", place.name, error)
                self._refused = str(error)
                continue
            log.info("%s was switched off and is deleted", place.name)
            self._requested.add(name)
