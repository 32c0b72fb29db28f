"""A cluster's managed instance groups. Groups have no labels, but the templates that they launch from have."""

from collections.abc import Iterator, Mapping
from typing import Any

from everspot_clouds.gcp.http_api import Api
from everspot_clouds.gcp.instances import last
from everspot_clouds.gcp.rules import CLUSTER_LABEL


def of_cluster(api: Api, region: str, cluster: str) -> list[dict[str, Any]]:
    """Return the regional groups whose template has the cluster's label, in the form of the API. Raises the errors of
    `Api`."""
    path = f"projects/{api.project}/regions/{region}"
    own_templates = set(templates(api, region, cluster))
    return [
        group
        for page in api.pages("compute", f"{path}/instanceGroupManagers")
        for group in page.get("items") or ()
        if own_templates & set(template_names(group))
    ]


def templates(api: Api, region: str, cluster: str) -> dict[str, Mapping[str, Any]]:
    """Return the properties of the regional templates with the cluster's label, by their names. Raises the errors of
    `Api`."""
    return {str(template["name"]): template["properties"] for template in _labelled(api, region, cluster)}


def images(api: Api, region: str, cluster: str) -> list[tuple[str, str]]:
    """Return each of these templates with the image of its boot disk, projects/PROJECT/global/images/NAME. Raises the
    errors of `Api`."""
    return [
        (str(template["name"]), link[link.rindex("projects/") :])
        for template in _labelled(api, region, cluster)
        for disk in template["properties"].get("disks") or ()
        if disk.get("boot") and "projects/" in (link := str((disk.get("initializeParams") or {}).get("sourceImage")))
    ]


def _labelled(api: Api, region: str, cluster: str) -> list[dict[str, Any]]:
    return [
        template
        for page in api.pages("compute", f"projects/{api.project}/regions/{region}/instanceTemplates")
        for template in page.get("items") or ()
        if ((template.get("properties") or {}).get("labels") or {}).get(CLUSTER_LABEL) == cluster
    ]


def template_names(group: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the templates from which a group launches."""
    yield last(str(group.get("instanceTemplate") or ""))
    for version in group.get("versions") or ():
        yield last(str(version.get("instanceTemplate") or ""))


def running(api: Api, region: str, group: str) -> int:
    """Return the number of running instances of a group. Raises the errors of `Api`."""
    return sum(instance.get("instanceStatus") == "RUNNING" for instance in _managed(api, region, group))


def failures(api: Api, region: str, group: str) -> list[dict[str, Any]]:
    """Return why a group lacks instances: the errors of the last attempts of its instances, each in the form of an
    operation's errors. Raises the errors of `Api`."""
    return [
        error
        for instance in _managed(api, region, group)
        for error in (((instance.get("lastAttempt") or {}).get("errors") or {}).get("errors") or ())
    ]


def _managed(api: Api, region: str, group: str) -> Iterator[dict[str, Any]]:
    path = f"projects/{api.project}/regions/{region}/instanceGroupManagers/{group}/listManagedInstances"
    token = ""
    while True:
        answer = api.call("POST", "compute", path, query={"pageToken": token} if token else {})
        yield from answer.get("managedInstances") or ()
        token = answer.get("nextPageToken") or ""
        if not token:
            return
