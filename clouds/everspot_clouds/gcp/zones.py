"""The zones of a region, by the API.

AI zones such as us-central1-ai1a ("AI zones" of the Compute Engine documentation) are left out: we have nothing there,
they are for those who name them, and nothing says that a bulk request may deny one.
"""

from everspot_clouds.gcp.http_api import Api
from everspot_clouds.gcp.instances import last
from everspot_clouds.gcp.names import ZONE


class Zones:
    """Reads the zones of each region once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._by_region: dict[tuple[str, str], list[str]] = {}

    def list_zones(self, region: str, project: str = "") -> list[str]:
        """Return the names of the zones, sorted. `project`: by default that of the credentials. Raises the errors of
        `Api`."""
        key = region, project or self._api.project
        if key not in self._by_region:
            answer = self._api.get("compute", f"projects/{key[1]}/regions/{region}")
            self._by_region[key] = sorted(name for name in map(last, answer.get("zones") or ()) if ZONE.match(name))
        return self._by_region[key]
