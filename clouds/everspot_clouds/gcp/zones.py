"""The zones of a region, by the API."""

from everspot_clouds.gcp.instances import last
from everspot_clouds.gcp.rest import Api


class Zones:
    """Reads the zones of each region once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[tuple[str, str], list[str]] = {}

    def of(self, region: str, project: str = "") -> list[str]:
        """Their names, sorted. `project`: by default that of the credentials. Raises the errors of `Api`."""
        key = region, project or self._api.project
        if key not in self._known:
            told = self._api.get("compute", f"projects/{key[1]}/regions/{region}")
            self._known[key] = sorted(map(last, told.get("zones") or ()))
        return self._known[key]
