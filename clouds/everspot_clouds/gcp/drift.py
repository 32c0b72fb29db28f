"""Finds manual additions to a stack's networks, service accounts and buckets.

To the provider, a firewall rule or a role binding is a separate resource. A refresh reads the declared ones, and no
others on the same network, account or bucket.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import requests
from everspot_store import SystemClock
from google.auth.exceptions import GoogleAuthError

from everspot_clouds.base.drift import AddedByHand, KeptResource, of_type
from everspot_clouds.gcp.errors import ApiError, to_cloud_error
from everspot_clouds.gcp.http_api import Api, open_api

NETWORK = "gcp:compute/network:Network"
FIREWALL = "gcp:compute/firewall:Firewall"
ACCOUNT = "gcp:serviceaccount/account:Account"
BUCKET = "gcp:storage/bucket:Bucket"
PROJECT_ROLES = ("gcp:projects/iAMMember:IAMMember", "gcp:projects/iAMBinding:IAMBinding")
ACCOUNT_ROLES = ("gcp:serviceaccount/iAMMember:IAMMember", "gcp:serviceaccount/iAMBinding:IAMBinding")
BUCKET_ROLES = ("gcp:storage/bucketIAMMember:BucketIAMMember", "gcp:storage/bucketIAMBinding:BucketIAMBinding")
CALLS = (
    "compute.firewalls.list", "resourcemanager.projects.getIamPolicy", "iam.serviceAccounts.getIamPolicy",
    "storage.buckets.getIamPolicy",
)  # fmt: skip
"""The permissions that the look needs."""

TYPES = (NETWORK, ACCOUNT, BUCKET)
CONVENIENCE = ("projectOwner:", "projectEditor:", "projectViewer:")
"""Members that every bucket begins with (Cloud Storage documentation, "IAM roles", convenience values)."""

Binding = tuple[str, str]
"""A role and a member."""


def added_by_hand(resources: Sequence[KeptResource]) -> list[AddedByHand]:
    """Return the rules and bindings that the cloud has and none of the resources declares. Asks with the environment's
    credentials.

    Raises:
        CloudError: if the cloud refuses or does not answer.
    """
    project = next((str(r.value("project")) for r in of_type(resources, *TYPES) if r.value("project")), "")
    api = open_api(SystemClock.from_environment(), project)
    try:
        return [*_firewalls(resources, api), *_projects(resources, api), *_accounts(resources, api),
                *_buckets(resources, api)]  # fmt: skip
    except (ApiError, requests.RequestException, GoogleAuthError) as error:
        raise to_cloud_error(error) from None
    finally:
        api.close()


def _firewalls(resources: Sequence[KeptResource], api: Api) -> Iterator[AddedByHand]:
    """Yield firewall rules on our networks that nobody declares, including those of services (such as GKE)."""
    declared = {(str(rule.value("project")), str(rule.value("name"))) for rule in of_type(resources, FIREWALL)}
    for network in of_type(resources, NETWORK):
        project, name = str(network.value("project") or api.project), str(network.value("name"))
        for page in api.pages("compute", f"projects/{project}/global/firewalls"):
            for rule in page.get("items") or ():
                own = str(rule["network"]).endswith(f"projects/{project}/global/networks/{name}")
                if own and (project, rule["name"]) not in declared:
                    yield AddedByHand(network.urn, "firewall rule", _rule(rule), str(rule["name"]))


def _rule(rule: Mapping[str, Any]) -> str:
    allowed = rule.get("allowed") or rule.get("denied") or ()
    ports = ", ".join(f"{each['IPProtocol']} {','.join(each.get('ports') or ['all'])}" for each in allowed)
    inward = rule.get("direction", "INGRESS") == "INGRESS"
    peers = rule.get("sourceRanges" if inward else "destinationRanges") or rule.get("sourceTags") or ["everywhere"]
    verb = "denies" if rule.get("denied") else "allows"
    return f"{rule['name']} {verb} {ports} {'from' if inward else 'to'} {', '.join(map(str, peers))}"


def _projects(resources: Sequence[KeptResource], api: Api) -> Iterator[AddedByHand]:
    """Yield roles in the project that our accounts hold and nobody declares."""
    accounts = {f"serviceAccount:{account.value('email')}": account for account in of_type(resources, ACCOUNT)}
    for project in sorted({str(account.value("project") or api.project) for account in accounts.values()}):
        declared = _declared(resources, PROJECT_ROLES, lambda r, p=project: str(r.value("project")).endswith(p))
        policy = api.post("resourcemanager", f"projects/{project}:getIamPolicy", _VERSION)
        for role, member in _bindings(policy):
            if member in accounts and (role, member) not in declared:
                label = f"{role} in project {project}"
                yield AddedByHand(accounts[member].urn, "role of the account", label, f"{project}:{role}:{member}")


def _accounts(resources: Sequence[KeptResource], api: Api) -> Iterator[AddedByHand]:
    """Yield the members that may use our accounts and that nobody declares."""
    for account in of_type(resources, ACCOUNT):
        declared = _declared(resources, ACCOUNT_ROLES, lambda r, a=account: str(r.value("serviceAccountId")) == a.id)
        policy = api.call("POST", "iam", f"{account.id}:getIamPolicy", query={"options.requestedPolicyVersion": 3})
        for role, member in _bindings(policy):
            if (role, member) not in declared:
                yield AddedByHand(account.urn, "use of the account", f"{role} for {member}", f"{role}:{member}")


def _buckets(resources: Sequence[KeptResource], api: Api) -> Iterator[AddedByHand]:
    """Yield the members that may use our buckets and that nobody declares."""
    for bucket in of_type(resources, BUCKET):
        name = str(bucket.value("name"))
        declared = _declared(resources, BUCKET_ROLES, lambda r, n=name: str(r.value("bucket")).removeprefix("b/") == n)
        policy = api.get("storage", f"b/{name}/iam", optionsRequestedPolicyVersion=3)
        for role, member in _bindings(policy):
            if (role, member) not in declared and not member.startswith(CONVENIENCE):
                yield AddedByHand(bucket.urn, "use of the bucket", f"{role} for {member}", f"{role}:{member}")


_VERSION = {"options": {"requestedPolicyVersion": 3}}
"""With conditions: without it they are not told (IAM documentation, "Understanding allow policies")."""


def _bindings(policy: Mapping[str, Any]) -> list[Binding]:
    return [(str(b["role"]), str(m)) for b in policy.get("bindings") or () for m in b.get("members") or ()]


def _declared(resources: Sequence[KeptResource], types: Sequence[str], selects: Any) -> set[Binding]:
    return {
        (str(resource.value("role")), str(member))
        for resource in of_type(resources, *types)
        if selects(resource)
        for member in [resource.value("member"), *(resource.value("members") or ())]
        if member
    }
