"""The needs of a call: the permissions of its method, the resource of each check, and the needs of its body.

The resource of a list, and of what is made by a name that the path does not have, is the project, as in the cloud's
own refusals ("Required 'compute.instances.list' permission for 'projects/P'"). Sources of what bodies add: "Create and
start a VM instance", section "Required permissions"; regionInstances.bulkInsert, regionInstanceGroupManagers.insert
and subnetworks.insert in the Compute Engine API reference; "Attach service accounts to resources" (actAs).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from everspot_local.gcp.iam.method_table import PERMISSIONS
from everspot_local.gcp.project import Need

Document = Mapping[str, Any]
_REGIONAL = {"regionInstanceGroupManagers": "instanceGroupManagers", "regionInstanceTemplates": "instanceTemplates",
             "regionHealthChecks": "healthChecks", "regionInstanceGroups": "instanceGroups",
             "regionOperations": "operations", "zoneOperations": "operations",
             "globalOperations": "operations"}  # fmt: skip
_OF_NETWORK = ("compute.subnetworks.insert", "compute.firewalls.insert", "compute.routers.insert")
_TEMPLATED = ("insert", "patch", "setInstanceTemplate")
_LISTS = ("list", "aggregatedList")
_COPIES = ("storage.objects.copy", "storage.objects.rewrite")
_WRITES = ("storage.objects.insert", "storage.objects.compose", "storage.multipartUploads.create", *_COPIES)
"""Methods that write an object."""


class Needs:
    """The needs of a project's calls.

    Args:
        project: its id.
        zones: of its region.
        resource: a resource of Compute by its path, if there is one.
        has_object: whether a bucket has an object.
    """

    def __init__(
        self,
        project: str,
        zones: Callable[[], Sequence[str]],
        resource: Callable[[str], Document | None],
        has_object: Callable[[str, str], bool],
    ) -> None:
        self._project, self._zones, self._resource, self._has_object = project, zones, resource, has_object

    def __call__(self, method: str, params: Document, body: Document) -> list[Need]:
        """Return all needs of a call. An unknown method needs a permission of its own name, which no role has."""
        if method in ("compute.regionInstances.bulkInsert", "compute.instances.bulkInsert", "compute.instances.insert"):
            return list(dict.fromkeys(self._launch(params, body)))
        if method.startswith("compute.") and params.get("project") != self._project:
            return []  # images that everybody may see; of all else the method itself knows nothing there
        permissions = PERMISSIONS.get(method, (method,))
        resource = self._target(method, params, body)
        list_prefix = str(params.get("prefix") or "") if method == "storage.objects.list" else ""
        needs = [Need(permission, resource, list_prefix) for permission in permissions]
        return list(dict.fromkeys([*needs, *self._more(method, params, body, resource)]))

    def _target(self, method: str, params: Document, body: Document) -> str:
        product, _, tail = method.partition(".")
        verb = tail.rpartition(".")[2]
        if product == "storage":
            return self._in_storage(params, body, verb)
        if product == "compute":
            return self._in_compute(tail.partition(".")[0], verb, params, body)
        name_keys = ("name", "resource", "topic", "subscription", "sinkName", "parent", "project", "projectId")
        name = next((str(params[key]) for key in name_keys if key in params), "")
        if name.startswith("billingAccounts/"):  # the account's own policy decides, and never the project's
            return "/".join(name.split("/")[:2])
        if product == "cloudresourcemanager" or verb == "list" or not name.startswith("projects/"):
            return f"projects/{self._project}"
        if verb == "create" and product != "cloudkms":  # what is not there yet has no policy of its own
            return self._top()
        # A project goes by its number, or by "-", where its id is meant.
        return "/".join(["projects", self._project, *name.split("/")[2:]])

    def _in_storage(self, params: Document, body: Document, verb: str) -> str:
        bucket = params.get("bucket") or params.get("destinationBucket")
        name = params.get("object") or params.get("destinationObject") or params.get("name")
        if verb == "insert" and bucket:
            name = name or body.get("name")
        if not bucket:
            return self._top()
        bucket_path = f"projects/_/buckets/{bucket}"
        return f"{bucket_path}/objects/{name}" if name and verb != "list" else bucket_path

    def _in_compute(self, kind: str, verb: str, params: Document, body: Document) -> str:
        if verb in _LISTS or kind in ("projects", "zones", "regions", "advice"):
            return self._top()
        plural = _REGIONAL.get(kind, kind)
        names = [str(v) for k, v in params.items() if k in _NAMES]
        name = names[0] if names else str(body.get("name") or "")
        return f"{self._scope(params)}/{plural}/{name}" if name else self._top()

    def _more(self, method: str, params: Document, body: Document, resource: str) -> Iterator[Need]:
        if method in _OF_NETWORK or method == "compute.firewalls.delete":
            network = body.get("network") or self._top() + "/global/networks/default"
            if method == "compute.firewalls.delete":
                firewall = self._resource(self._in_compute("firewalls", "delete", params, body)) or {}
                network = firewall.get("network") or network
            yield Need("compute.networks.updatePolicy", _path(network, self._project))
        elif method == "compute.images.insert":
            yield Need("compute.disks.useReadOnly", _path(str(body.get("sourceDisk") or ""), self._project))
            if body.get("labels"):
                yield Need("compute.images.setLabels", resource)
        elif method in ("compute.instanceTemplates.insert", "compute.regionInstanceTemplates.insert"):
            yield from self._acting(body.get("properties") or {})
        elif "nstanceGroupManagers." in method and method.endswith(_TEMPLATED):
            for link in _templates(body):
                yield from self._of_template(link, params)
        elif method == "pubsub.projects.subscriptions.create":
            yield Need("pubsub.topics.attachSubscription", str(body.get("topic") or ""))
        elif method in _WRITES:
            yield from self._written(method, params, body)

    def _written(self, method: str, params: Document, body: Document) -> Iterator[Need]:
        bucket = str(params.get("bucket") or params.get("destinationBucket"))
        name = str(params.get("object") or params.get("destinationObject") or params.get("name") or body.get("name"))
        if self._has_object(bucket, name):  # what is replaced is deleted
            yield Need("storage.objects.delete", f"projects/_/buckets/{bucket}/objects/{name}")
        sources: list[tuple[Any, Any]] = [(bucket, source.get("name")) for source in body.get("sourceObjects") or []]
        if method in _COPIES:
            sources = [(params.get("sourceBucket"), params.get("sourceObject"))]
        if method.endswith("compose") or method in _COPIES:
            for place, source_name in sources:
                yield Need("storage.objects.get", f"projects/_/buckets/{place}/objects/{source_name}")

    def _of_template(self, link: str, params: Document) -> Iterator[Need]:
        path = _path(link, self._project)
        yield Need("compute.instanceTemplates.useReadOnly", path)
        properties = (self._resource(path) or {}).get("properties") or {}
        yield from self._instance_needs(properties, self._top(), params)

    def _launch(self, params: Document, body: Document) -> Iterator[Need]:
        """Return the needs of a launch in each zone that the instances may be placed in."""
        link = body.get("sourceInstanceTemplate") or params.get("sourceInstanceTemplate") or ""
        properties: Document = body.get("instanceProperties") or body
        if link:
            path = _path(str(link), self._project)
            yield Need("compute.instanceTemplates.useReadOnly", path)
            template_properties = (self._resource(path) or {}).get("properties") or {}
            properties = {**template_properties, **{key: value for key, value in properties.items() if value}}
        locations = (body.get("locationPolicy") or {}).get("locations") or {}
        denied = {key.rpartition("/")[2] for key, value in locations.items() if value.get("preference") == "DENY"}
        zones = [params["zone"]] if "zone" in params else [zone for zone in self._zones() if zone not in denied]
        for name in _instance_names(body):
            for zone in zones:
                yield from self._instance_needs(properties, f"{self._top()}/zones/{zone}/instances/{name}", params)

    def _instance_needs(self, properties: Document, instance: str, params: Document) -> Iterator[Need]:
        """Return the needs of an instance with these properties."""
        yield Need("compute.instances.create", instance)
        new = [disk for disk in properties.get("disks") or [] if disk.get("initializeParams") or not disk.get("source")]
        if new:
            yield Need("compute.disks.create", _disk(instance))
        if any((disk.get("initializeParams") or {}).get("labels") for disk in new):
            yield Need("compute.disks.setLabels", _disk(instance))
        for disk in new:
            image = str((disk.get("initializeParams") or {}).get("sourceImage") or "")
            if f"projects/{self._project}/" in image or image.startswith("global/"):
                yield Need("compute.images.useReadOnly", _path(image, self._project))
        for interface in properties.get("networkInterfaces") or []:
            subnet = str(interface.get("subnetwork") or "")
            where = _path(subnet, self._project, params.get("region", "")) if subnet else self._top()
            yield Need("compute.subnetworks.use", where)
            if interface.get("accessConfigs"):
                yield Need("compute.subnetworks.useExternalIp", where)
        for key, permission in (("metadata", "setMetadata"), ("labels", "setLabels"), ("tags", "setTags")):
            if (properties.get(key) or {}).get("items", properties.get(key)):
                yield Need(f"compute.instances.{permission}", instance)
        if any(properties.get("serviceAccounts") or []):
            yield Need("compute.instances.setServiceAccount", instance)
        yield from self._acting(properties)

    def _acting(self, properties: Document) -> Iterator[Need]:
        for account in filter(None, properties.get("serviceAccounts") or []):
            yield Need("iam.serviceAccounts.actAs", f"{self._top()}/serviceAccounts/{account.get('email')}")

    def _scope(self, params: Document) -> str:
        if "zone" in params:
            return f"{self._top()}/zones/{params['zone']}"
        return f"{self._top()}/regions/{params['region']}" if "region" in params else f"{self._top()}/global"

    def _top(self) -> str:
        return f"projects/{self._project}"


_NAMES = {"instance", "network", "subnetwork", "firewall", "router", "healthCheck", "instanceTemplate", "disk", "image",
          "instanceGroupManager", "instanceGroup", "operation", "route", "family", "machineType", "acceleratorType",
          "diskType", "reservation", "resource"}  # fmt: skip


def _path(link: str, project: str, region: str = "") -> str:
    """Return the path of a resource from any form of link to it."""
    if "projects/" in link:
        return link[link.index("projects/") :]
    if "/" in link:
        return f"projects/{project}/{link}"
    return f"projects/{project}/regions/{region}/subnetworks/{link}" if region else f"projects/{project}/{link}"


def _templates(body: Document) -> list[str]:
    links = [body.get("instanceTemplate"), *(v.get("instanceTemplate") for v in body.get("versions") or [])]
    return [str(link) for link in dict.fromkeys(links) if link]


def _instance_names(body: Document) -> list[str]:
    """Return the instances' names as far as the call states them: a pattern is returned as it is."""
    listed = [str(v.get("name") or k) for k, v in (body.get("perInstanceProperties") or {}).items()]
    return listed or [str(body.get("namePattern") or body.get("name") or "")]


def _disk(instance: str) -> str:
    """Return the path of an instance's boot disk, which has the instance's name unless the call states another."""
    return instance.replace("/instances/", "/disks/")
