"""The demonstration on Google Cloud: its stacks and pools, and plain requests for what really exists."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

from everspot_clouds.gcp.rules import LAUNCH_LABEL

from everspot_local.demo.site import Environment, Site

PROJECT = "everspot-local"
AGGREGATED = ("instances", "disks", "instanceGroupManagers", "instanceTemplates", "subnetworks", "routers")
"""Kinds of Compute Engine's resources that are listed with those of all zones and regions."""
GLOBAL = ("networks", "firewalls", "healthChecks")
"""Those that belong to the project."""
OTHERS = {
    "bucket": "/storage/v1/b?project={project}",
    "topic": "/pubsub/v1/projects/{project}/topics",
    "subscription": "/pubsub/v1/projects/{project}/subscriptions",
    "sink": "/logging/v2/projects/{project}/sinks",
    "service account": "/iam/v1/projects/{project}/serviceAccounts",
    "role": "/iam/v1/projects/{project}/roles",
    "secret": "/secretmanager/v1/projects/{project}/secrets",
    "alert policy": "/monitoring/v3/projects/{project}/alertPolicies",
}
"""What other services list, by kind."""


def leftovers(env: Environment, cluster: str) -> list[str]:
    """Return every resource that the cluster could have left behind, by kind and name; empty when all is deleted."""
    compute = f"/compute/v1/projects/{env['GOOGLE_PROJECT']}"
    resources = [f"{kind} {item['name']}" for kind in AGGREGATED for item in _everywhere(env, kind)]
    for kind in GLOBAL:
        resources += [
            f"{kind} {item['name']}" for item in _request_json(env, f"{compute}/global/{kind}").get("items", [])
        ]
    for kind, path in OTHERS.items():
        answer = _request_json(env, path.format(project=env["GOOGLE_PROJECT"]))
        resources += [
            f"{kind} {item['name']}" for items in answer.values() if isinstance(items, list) for item in items
        ]
    policy = _request_json(env, f"/resourcemanager/v1/projects/{env['GOOGLE_PROJECT']}:getIamPolicy", {})
    grants = [(b["role"], member) for b in policy.get("bindings", []) for member in b["members"]]
    return resources + [
        f"grant of {role} to {member}" for role, member in grants if cluster in role or cluster in member
    ]


def launched(env: Environment) -> list[str]:
    """Return the instances that the scheduler launched for jobs and that are not deleted. Stopped instances count,
    because only deleted ones cost nothing."""
    return [item["name"] for item in _everywhere(env, "instances") if LAUNCH_LABEL in item.get("labels", {})]


def _everywhere(env: Environment, kind: str) -> Iterator[dict[str, Any]]:
    answer = _request_json(env, f"/compute/v1/projects/{env['GOOGLE_PROJECT']}/aggregated/{kind}")
    for scope in answer.get("items", {}).values():
        yield from scope.get(kind, [])


def _request_json(env: Environment, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the cloud's answer to a request. `body`: of a POST."""
    headers = {"Authorization": f"Bearer {env['GOOGLE_OAUTH_ACCESS_TOKEN']}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(env["EVERSPOT_GCP_ENDPOINT"] + path, data, headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        document: dict[str, Any] = json.loads(answer.read() or b"{}")
    return document


SITE = Site(
    cloud="gcp",
    account="gcp-account",
    cluster="local-gcp",
    dry=("n2-standard-8/*", "c3-highcpu-8/*"),
    patient=("--set", "resources.vcpus=8"),
    folder="demo-gcp",
    asked_through="plain requests",
    launched=launched,
    leftovers=leftovers,
    settings={"gcp-account": {"gcp:project": PROJECT}},
)
