"""The resources of a cluster in Google Cloud that cost money, found by its label, for `everspot down`.

Groups and routers have no labels: groups are found by the label of their template, routers by the cluster's name.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import requests
from everspot_core.clock import Clock
from everspot_core.manifest import Manifest
from google.auth.exceptions import GoogleAuthError

from everspot_clouds.base import Left
from everspot_clouds.gcp import errors, groups, instances
from everspot_clouds.gcp.endings import delete
from everspot_clouds.gcp.errors import ApiError
from everspot_clouds.gcp.instances import last
from everspot_clouds.gcp.rest import Api, open_api
from everspot_clouds.gcp.rules import CLUSTER_LABEL, LAUNCH_LABEL, ROLE_LABEL

_ENDING = ("STOPPING", "PENDING_STOP", "DEPROVISIONING")
_T = TypeVar("_T")
_FAILURES = (ApiError, requests.RequestException, GoogleAuthError)


class GcpSite:
    """The `Site` of a cluster in Google Cloud, with the user's credentials."""

    def __init__(self, manifest: Manifest, clock: Clock) -> None:
        """Raises `CloudError` if there are no credentials, or no project is known."""
        self._api: Api = open_api(clock, manifest.account)
        self._cluster, self._region = manifest.cluster, manifest.region
        self._buckets = [url for url in (manifest.control_url, manifest.data_url) if url.startswith("gs://")]

    def left(self) -> list[Left]:
        """See `Site`."""
        return self._told(
            lambda: [*self._instances(), *self._groups(), *self._disks(), *self._gateways(), *self._kept()]
        )

    def end(self, wanted: Iterable[str]) -> None:
        """See `Site`."""

        def delete_all() -> None:
            places = instances.whereabouts(self._api, self._cluster)
            for name in dict.fromkeys(wanted):
                if name in places:
                    delete(self._api, places[name])

        self._told(delete_all)

    def _told(self, ask: Callable[[], _T]) -> _T:
        try:
            return ask()
        except _FAILURES as error:
            raise errors.told(error) from error

    def _instances(self) -> Iterator[Left]:
        for raw in instances.of_cluster(self._api, self._cluster):
            found, labels = instances.parse(raw), raw.get("labels") or {}
            state = str(raw.get("status") or "").lower()
            yield Left(
                kind="instance",
                name=found.instance_id,
                detail=f"{labels.get(ROLE_LABEL, 'of no role')}, {found.instance_type} in {found.zone}, {state}",
                launched=LAUNCH_LABEL in labels,
                ending=raw.get("status") in _ENDING,
            )

    def _groups(self) -> Iterator[Left]:
        for group in groups.of_cluster(self._api, self._region, self._cluster):
            yield Left(kind="instance group", name=group["name"], detail=f"target {group.get('targetSize', 0)}")

    def _disks(self) -> Iterator[Left]:
        path = f"projects/{self._api.project}/aggregated/disks"
        asked = f"labels.{CLUSTER_LABEL}={self._cluster}"
        for page in self._api.pages("compute", path, filter=asked):
            for scope in (page.get("items") or {}).values():
                for disk in scope.get("disks") or ():
                    yield _disk(disk)

    def _gateways(self) -> Iterator[Left]:
        path = f"projects/{self._api.project}/regions/{self._region}/routers"
        for page in self._api.pages("compute", path):
            for router in page.get("items") or ():
                mine = str(router.get("name") or "").startswith(f"{self._cluster}-")
                for nat in (router.get("nats") or ()) if mine else ():
                    yield Left(kind="NAT gateway", name=nat.get("name", ""), detail=f"on router {router['name']}")

    def _kept(self) -> Iterator[Left]:
        for url in self._buckets:
            name = url.removeprefix("gs://").partition("?")[0].partition("/")[0]
            try:
                self._api.get("storage", f"b/{name}")
            except ApiError as error:
                if error.gone:
                    continue
                raise
            yield Left(kind="bucket", name=name, kept=True)


def _disk(disk: dict[str, Any]) -> Left:
    users = [last(user) for user in disk.get("users") or ()]
    where = f" of {', '.join(users)}" if users else ", attached to nothing"
    # Disks go with their instances: the templates say so.
    return Left(kind="disk", name=disk["name"], detail=f"{disk.get('sizeGb', '?')} GB{where}", ending=bool(users))
