"""The resources of a cluster in Google Cloud that cost money, found by its label, for `everspot cluster down`.

Groups and routers have no labels: groups are found by the label of their template, routers by the cluster's name.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest
from everspot_core.estimate.requested import HOURS_A_MONTH
from google.auth.exceptions import GoogleAuthError

from everspot_clouds.base import Phase, RemainingResource
from everspot_clouds.gcp import errors, fixed_prices, groups, instances
from everspot_clouds.gcp.errors import ApiError
from everspot_clouds.gcp.http_api import Api, open_api
from everspot_clouds.gcp.instances import last
from everspot_clouds.gcp.rules import CLUSTER_LABEL, LAUNCH_LABEL, ROLE_LABEL
from everspot_clouds.gcp.terminations import terminate

INSTANCE, GROUP, DISK, NAT, TEMPLATE = "instance", "instance group", "disk", "NAT gateway", "instance template"
SUBSCRIPTION, TOPIC, BUCKET = "subscription", "topic", "bucket"
"""The kinds of resources, for people."""

_PLACES = {
    GROUP: "regions/{region}/instanceGroupManagers/{name}",
    DISK: "zones/{zone}/disks/{name}",
    NAT: "regions/{region}/routers/{parent}",
    TEMPLATE: "regions/{region}/instanceTemplates/{name}",
}
"""The API path of a resource to delete, below the project, by the resource's kind."""

_COLLECTIONS = {SUBSCRIPTION: "subscriptions", TOPIC: "topics"}
"""Of Pub/Sub, by the kind of the resource."""

_REMOVALS = {
    INSTANCE: "instances delete {vm} --zone {zone}",
    GROUP: "instance-groups managed delete {name} --region {region}",
    DISK: "disks delete {name} --zone {zone}",
    NAT: "routers delete {parent} --region {region}",
    TEMPLATE: "instance-templates delete {name} --region {region}",
}
"""The commands of gcloud's group `compute`, by the kind of the resource."""

_ENDING = ("STOPPING", "PENDING_STOP", "DEPROVISIONING")
_T = TypeVar("_T")
_FAILURES = (ApiError, requests.RequestException, GoogleAuthError)


class GcpSite:
    """The `Site` of a cluster in Google Cloud, with the user's credentials."""

    def __init__(self, manifest: Manifest, clock: Clock) -> None:
        """Raises `CloudError` if there are no credentials, or no project is known."""
        self._api: Api = open_api(clock, manifest.account)
        self._cluster, self._region, self._control_url = manifest.cluster, manifest.region, manifest.control_url
        self._buckets = [url for url in (manifest.control_url, manifest.data_url) if url.startswith("gs://")]

    def remaining(self) -> list[RemainingResource]:
        """See `Site`."""
        return self._call(
            lambda: [
                *self._instances(groups := list(self._groups())),
                *groups,
                *self._disks(),
                *self._gateways(),
                *self._retained_buckets(),
            ]
        )

    def list_unbilled(self) -> list[RemainingResource]:
        """See `Site`. Instance templates."""
        return [
            RemainingResource(kind=TEMPLATE, name=name, unmarked=own is None)
            for name, own in self._call(self._templates).items()
            if own is not False
        ]

    def list_other_services(self) -> list[RemainingResource]:
        """See `Site`. Subscriptions, topics and buckets; networks and service accounts have no labels."""
        return self._call(lambda: [*self._messaging(), *self._other_buckets()])

    def _messaging(self) -> Iterator[RemainingResource]:
        for kind, collection in _COLLECTIONS.items():
            for page in self._api.pages("pubsub", f"projects/{self._api.project}/{collection}"):
                for document in page.get(collection) or ():
                    own = instances.is_own(document, self._control_url)
                    if self._is_labelled(document) and own is not False:
                        yield RemainingResource(kind=kind, name=last(document["name"]), unmarked=own is None)

    def _other_buckets(self) -> Iterator[RemainingResource]:
        own_buckets = {urlsplit(url).netloc for url in self._buckets}
        for page in self._api.pages("storage", "b", project=self._api.project):
            for bucket in page.get("items") or ():
                if self._is_labelled(bucket) and bucket["name"] not in own_buckets:
                    yield RemainingResource(kind=BUCKET, name=bucket["name"], usd_per_hour=None, by_hand=True)

    def _templates(self) -> dict[str, bool | None]:
        """Return whether each template with the cluster's label bears the mark of the store. None: it bears none."""
        templates = groups.templates(self._api, self._region, self._cluster)
        return {name: instances.is_own(properties, self._control_url) for name, properties in templates.items()}

    def _is_labelled(self, document: dict[str, Any]) -> bool:
        return bool((document.get("labels") or {}).get(CLUSTER_LABEL) == self._cluster)

    def end(self, ids: Iterable[str]) -> None:
        """See `Site`."""

        def delete_all() -> None:
            places, unreachable = instances.find_places(self._api, self._region, self._cluster, self._control_url)
            terminate(self._api, ids, places, unreachable)

        self._call(delete_all)

    def remove(self, resources: Iterable[RemainingResource]) -> None:
        """See `Site`."""
        selected = list(resources)
        self.end([item.name for item in selected if item.kind == INSTANCE])
        for resource in selected:
            place = _PLACES.get(resource.kind)
            if place is not None:
                self._call(partial(self._delete, "compute", self._filled(place, resource)))
            elif resource.kind in _COLLECTIONS:
                self._call(partial(self._delete, "pubsub", f"{_COLLECTIONS[resource.kind]}/{resource.name}"))

    def removal(self, resource: RemainingResource) -> str:
        """See `Site`."""
        if resource.unmarked:
            return ""
        if resource.kind in _COLLECTIONS:
            return f"gcloud pubsub {_COLLECTIONS[resource.kind]} delete {resource.name} --project {self._api.project}"
        if resource.kind == BUCKET:
            return f"gcloud storage buckets delete gs://{resource.name}"
        command = _REMOVALS.get(resource.kind)
        return f"gcloud compute {self._filled(command, resource)} --project {self._api.project}" if command else ""

    def _filled(self, form: str, resource: RemainingResource) -> str:
        return form.format(
            name=resource.name, region=self._region, zone=resource.zone, parent=resource.part_of, vm=resource.vm_name
        )

    def _delete(self, product: str, path: str) -> None:
        try:
            self._api.call("DELETE", product, f"projects/{self._api.project}/{path}")
        except ApiError as error:
            if not error.missing:
                raise

    def _call(self, operation: Callable[[], _T]) -> _T:
        try:
            return operation()
        except _FAILURES as error:
            raise errors.to_cloud_error(error) from error

    def _instances(self, capacity: Iterable[RemainingResource]) -> Iterator[RemainingResource]:
        """Yield the instances. One without a mark of its own bears that of its group in `capacity`."""
        marked = {item.name for item in capacity if not item.unmarked}
        for raw in instances.of_cluster(self._api, self._region, self._cluster, self._control_url):
            instance, labels = instances.parse(raw), raw.get("labels") or {}
            state = str(raw.get("status") or "").lower()
            yield RemainingResource(
                kind=INSTANCE,
                name=instance.instance_id,
                detail=f"{labels.get(ROLE_LABEL, 'of no role')}, {instance.instance_type} in {instance.zone}, {state}",
                launched=LAUNCH_LABEL in labels,
                ending=raw.get("status") in _ENDING,
                capacity=True,
                part_of=instance.part_of,
                unmarked=instances.is_own(raw, self._control_url) is None and instance.part_of not in marked,
                role=labels.get(ROLE_LABEL, ""),
                instance_type="" if instance.phase is Phase.ENDED else instance.instance_type,
                zone=instance.zone,
                market=instance.market,
                vm_name=str(raw["name"]),
            )

    def _groups(self) -> Iterator[RemainingResource]:
        templates = self._templates()
        for group in groups.of_cluster(self._api, self._region, self._cluster):
            marks = {templates.get(name) for name in groups.template_names(group)}
            if False not in marks:
                yield RemainingResource(
                    kind=GROUP,
                    name=group["name"],
                    detail=f"target {group.get('targetSize', 0)}",
                    capacity=True,
                    unmarked=True not in marks,
                )

    def _disks(self) -> Iterator[RemainingResource]:
        path = f"projects/{self._api.project}/aggregated/disks"
        query = f"labels.{CLUSTER_LABEL}={self._cluster}"
        for page in self._api.aggregated("compute", path, self._region, filter=query):
            for scope in (page.get("items") or {}).values():
                for disk in scope.get("disks") or ():
                    own = instances.is_own(disk, self._control_url)
                    if own is not False:
                        yield replace(_disk(disk), unmarked=own is None)

    def _gateways(self) -> Iterator[RemainingResource]:
        """Yield the cluster's own. Routers have no labels, so that the name of its `GcpNetwork` decides: the cluster's
        name alone would also match a cluster whose name only begins like it. They bear no mark either."""
        path, prefix = f"projects/{self._api.project}/regions/{self._region}/routers", f"{self._cluster}-network-router"
        for page in self._api.pages("compute", path):
            for router in page.get("items") or ():
                own = str(router.get("name") or "").startswith(prefix)
                for nat in (router.get("nats") or ()) if own else ():
                    yield RemainingResource(
                        kind=NAT,
                        name=nat.get("name", ""),
                        detail=f"on router {router['name']}",
                        part_of=str(router["name"]),
                        usd_per_hour=float(fixed_prices.NAT_VM.usd),
                        unmarked=True,
                    )

    def _retained_buckets(self) -> Iterator[RemainingResource]:
        for url in self._buckets:
            name = url.removeprefix("gs://").partition("?")[0].partition("/")[0]
            try:
                self._api.get("storage", f"b/{name}")
            except ApiError as error:
                if error.missing:
                    continue
                raise
            yield RemainingResource(kind="bucket", name=name, retained=True)


def _disk(disk: dict[str, Any]) -> RemainingResource:
    users = [last(user) for user in disk.get("users") or ()]
    where = f" of {', '.join(users)}" if users else ", attached to nothing"
    price = fixed_prices.DISK_GIB.get(last(str(disk.get("type") or "")))
    return RemainingResource(
        kind=DISK,
        name=disk["name"],
        detail=f"{disk.get('sizeGb', '?')} GB{where}",
        ending=bool(users),  # disks go with their instances: the templates say so
        zone=last(str(disk.get("zone") or "")),
        usd_per_hour=None if price is None else float(int(disk.get("sizeGb") or 0) * price.usd) / HOURS_A_MONTH,
    )
