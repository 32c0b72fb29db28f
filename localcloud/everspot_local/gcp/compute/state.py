"""Stands in for Compute Engine's records: every resource of the project by its path, and its references to others.

It keeps what was sent with what the API itself adds; nothing here knows what a resource is for.
"""

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from everspot_core.jobs.records import Market

from everspot_local.gcp.answers import ApiError, missing
from everspot_local.gcp.compute.names import already_exists, in_use, moment, new_id, resource_path, tail
from everspot_local.gcp.operations import Operation, OperationFailed, Operations
from everspot_local.gcp.project import PROJECT, Project

Document = dict[str, Any]
_NO_REFERENCES = {
    "selfLink", "selfLinkWithId", "metadata", "region", "zone", "machineType", "sourceImage", "sourceDisk",
}  # fmt: skip
"""Fields whose links do not block a deletion."""


class Compute:
    """The project's Compute Engine. Its methods are called with the market's lock held.

    Attributes:
        vms: instances by path.
        groups: managed groups by path.
        limits: each returns the error that forbids so many more machines of a catalogue type in a market, or None.
        quotas: returns the quotas of the region.
        global_quotas: returns the quotas of the project.
        images_gone: paths of deleted images.
        disk_machines: id of the machine whose tree is on a boot disk, by the disk's path.
        deprecations: deprecation status of images by path, as images.deprecate set it.
    """

    name = PROJECT

    def __init__(self, project: Project) -> None:
        self.project = project
        self.operations = Operations(project)
        self.resources: dict[str, Document] = {}
        self.vms: dict[str, Any] = {}
        self.groups: dict[str, Any] = {}
        self.healing: Any = None  # of the groups, once there are calls about them
        self.images_gone: set[str] = set()
        self.disk_machines: dict[str, str] = {}
        self.deprecations: dict[str, Document] = {}
        self.limits: list[Callable[[str, Market, int], OperationFailed | None]] = []
        self.quotas: Callable[[], list[Document]] = list
        self.global_quotas: Callable[[], list[Document]] = list
        project.resets += [self.resources.clear, self.vms.clear, self.groups.clear]
        project.resets += [self.images_gone.clear, self.deprecations.clear, self.disk_machines.clear]

    def link(self, path: str) -> str:
        """Return the URL of a path."""
        return f"{self.project.endpoint}/compute/v1/{path}"

    def path(self, link: str) -> str:
        """Return the path of a resource from any form of a link to it."""
        return resource_path(link, f"projects/{PROJECT}")

    def scope(self, params: Mapping[str, Any]) -> str:
        """Return where a call's resources are: `projects/P/zones/Z`, `projects/P/regions/R` or `projects/P/global`.

        Raises:
            ApiError: for another project, region or zone than there is.
        """
        self.check_project(params)
        if "zone" in params:
            self.check_zone(params["zone"])
            return f"projects/{PROJECT}/zones/{params['zone']}"
        if "region" in params:
            self.check_region(params["region"])
            return f"projects/{PROJECT}/regions/{params['region']}"
        return f"projects/{PROJECT}/global"

    def check_project(self, params: Mapping[str, Any]) -> None:
        """Refuse any other project with 403, as Google does for projects that a caller has no access to."""
        if params["project"] != PROJECT:
            raise ApiError(
                403, "forbidden", f"Permission denied on resource 'projects/{params['project']}' (or it may not exist)."
            )

    def check_region(self, region: str) -> None:
        """Refuse a region that this project does not have (404)."""
        if region != self.project.region:
            raise missing(f"projects/{PROJECT}/regions/{region}")

    def check_zone(self, zone: str) -> None:
        """Refuse a zone that the region does not have (404)."""
        if zone not in self.project.zones:
            raise missing(f"projects/{PROJECT}/zones/{zone}")

    def get(self, path: str) -> Document:
        """Return the stored resource itself: a change of it is a change of the record.

        Raises:
            ApiError: 404.
        """
        if path not in self.resources:
            raise missing(path)
        return self.resources[path]

    def referred(self, link: str, kind: str, field: str) -> str:
        """Return the path of an existing resource that a request names.

        Raises:
            ApiError: 400 for a link of another kind; 404 for one that leads nowhere.
        """
        path = resource_path(link, f"projects/{PROJECT}", field)
        if path.split("/")[-2:-1] != [kind]:
            raise ApiError(400, "invalid", f"Invalid value for field '{field}': '{link}'. The URL is malformed.")
        if path not in self.resources:
            raise missing(path)
        return path

    def add(self, path: str, kind: str, body: Mapping[str, Any]) -> Document:
        """Store a new resource, with the fields that the API adds to every one.

        Raises:
            ApiError: 409, if its name is taken.
        """
        if path in self.resources:
            raise already_exists(path)
        document = {
            **body,
            "kind": f"compute#{kind}",
            "id": new_id(),
            "name": tail(path),
            "creationTimestamp": moment(self.project.market.clock.now()),
            "selfLink": self.link(path),
        }
        place = path.split("/")
        if place[2] in ("regions", "zones"):
            document[place[2][:-1]] = self.link("/".join(place[:4]))
        self.resources[path] = document
        return document

    def under(self, folder: str) -> list[Document]:
        """Return the resources of a folder (`projects/P/zones/Z/instances`), by name."""
        return [self.resources[path] for path in sorted(self.resources) if path.rpartition("/")[0] == folder]

    def of_kind(self, kind: str) -> Iterator[tuple[str, Document]]:
        """Yield every resource of a kind with its path, wherever it lies."""
        for path in sorted(self.resources):
            if path.split("/")[-2] == kind:
                yield path, self.resources[path]

    def check_unused(self, path: str) -> None:
        """Refuse to delete a resource that another one refers to (400 `resourceInUseByAnotherResource`). Templates
        do not count: they do not keep a subnetwork or a network from being deleted (VPC, "Subnets", "Delete a
        network")."""
        for other, resource in self.resources.items():
            if other != path and "/instanceTemplates/" not in other and path in _references(resource):
                raise in_use(path, other)

    def begun(self, request: Any, kind: str, path: str, **more: Any) -> Operation:
        """Begin the operation of a call, so that a repeated call gets the same one."""
        scope = "/".join(path.split("/")[: 3 if path.split("/")[2] == "global" else 4])
        target_id = str(self.resources.get(path, {}).get("id", "0"))
        operation = self.operations.begin(kind, scope, path, target_id, request.caller.email, **more)
        self.operations.remember(request.method, request.params, operation)
        return operation


def fingerprint(value: Any) -> str:
    """Return a value that changes with the resource: eight bytes, as Compute's are."""
    return base64.b64encode(hashlib.sha256(repr(value).encode()).digest()[:8]).decode()


def _references(value: Any) -> set[str]:
    """Return the paths of all links in a resource."""
    paths: set[str] = set()
    if isinstance(value, dict):
        for key, part in value.items():
            if key not in _NO_REFERENCES:
                paths |= _references(part)
    elif isinstance(value, list):
        for part in value:
            paths |= _references(part)
    elif isinstance(value, str) and "projects/" in value:
        paths.add(value[value.index("projects/") :])
    return paths
