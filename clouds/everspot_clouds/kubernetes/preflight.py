"""Asks AWS and the API server whether a training cluster can be declared in an existing Kubernetes cluster.

Nothing is changed and nothing is launched. Rights are asked for by SelfSubjectAccessReview (Kubernetes,
"Authorization").
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from everspot_core.clock import Clock
from everspot_core.cluster.checks import Check, Verdict
from everspot_core.cluster.preflight import PreflightPlan, cap_checks

from everspot_clouds.aws.checks import account_checks, client_missing
from everspot_clouds.aws.checks import client as aws_client
from everspot_clouds.aws.checks import guarded as aws_guarded
from everspot_clouds.aws.rules import BOOTSTRAP, REGISTRY_HOST
from everspot_clouds.kubernetes.node_checks import network_checks, pass_role_checks, role_checks
from everspot_clouds.kubernetes.requirements import claim_checks, guarded, requirement_checks, rights_check
from everspot_clouds.kubernetes.rules import (
    CLUSTER_LABEL,
    DECLARED,
    GKE,
    GKE_CONTEXT,
    GKE_VERSION,
    READERS,
    READING_ROLES,
)

_SHOW_SECRETS = frozenset(
    {
        *("AmazonEKSAdminViewPolicy", "AmazonEKSEditPolicy", "AmazonEKSAdminPolicy"),
        *("AmazonEKSClusterAdminPolicy", "AmazonEKSSecretReaderPolicy"),
    }
)
"""EKS's policies that show Secrets (Amazon EKS User Guide, "Review access policy permissions")."""


if TYPE_CHECKING:
    from everspot_clouds.kubernetes.client import KubernetesClient

_WRITES = ("get", "create", "patch", "delete")
RIGHTS = tuple((resource, group, _WRITES) for resource, group in DECLARED)
"""What `pulumi up` and `destroy` do: resources, their API groups, and verbs."""
_ECR = re.compile(REGISTRY_HOST + r"/(?P<name>[^@:]+)")


def deployer_checks(plan: PreflightPlan, clock: Clock) -> list[Check]:
    """Check credentials first, and the rest only if they work."""
    from everspot_clouds.kubernetes.checks import open_client

    if plan.context.startswith(GKE_CONTEXT):
        return [_refuse_gke(plan.context)]
    if (checks := client_missing()) is not None:
        return checks
    checks = account_checks(plan.manifest.region, plan.manifest, plan.catalogue, clock)
    if checks[0].verdict is not Verdict.OK:
        return checks
    caller = checks[0].detail
    checks += cap_checks(plan)
    checks += aws_guarded("image", "user", lambda: _image(plan.image))
    eks = partial(aws_client, plan.manifest.region, "eks")
    client = open_client(None, plan.namespace, plan.context)
    if isinstance(client, Check):
        return [*checks, client]
    try:
        reached = guarded("credentials", "kubernetes", lambda: [_version(client)])
        if reached[0].verdict is not Verdict.OK:
            return checks + reached
        checks += reached
        checks += aws_guarded("eks cluster", "user", lambda: _eks(eks(), plan, client))
        access = aws_guarded("cluster access", "user", lambda: access_checks(eks(), plan.host_cluster, caller))
        checks += [check for check in access if check.verdict is not Verdict.SKIP]  # most people may not see it
        checks.append(rights_check(client, RIGHTS, "let an administrator bind you to cluster-admin, or run it for you"))
        checks += requirement_checks(client, gpus=any(kind.gpus for kind in plan.types))
        checks += _nodes(plan, client)
        checks += guarded("user", "namespace", lambda: _taken_names(client, plan))
        return checks + guarded("user", "datasets claim", lambda: _claim(client, plan))
    finally:
        client.close()


def _nodes(plan: PreflightPlan, client: "KubernetesClient") -> list[Check]:
    """Check what Karpenter launches nodes with. The Kubernetes cluster is asked for Karpenter's own role."""
    connect = partial(aws_client, plan.manifest.region)
    checks = aws_guarded("node role", "user", lambda: role_checks(connect("iam"), plan))
    checks += guarded(
        "user",
        "pass role",
        lambda: aws_guarded(
            "pass role", "user", lambda: pass_role_checks(connect("iam"), partial(connect, "eks"), plan, client)
        ),
    )
    return checks + aws_guarded("node subnets", "user", lambda: network_checks(connect("ec2"), plan))


def _version(client: "KubernetesClient") -> Check:
    version = str(client.read("/version")["gitVersion"])
    if GKE_VERSION in version:
        return _refuse_gke(client.server)
    detail = f"{client.server} answers, Kubernetes {version}"
    return Check("credentials", "kubernetes", Verdict.OK, detail)


def _refuse_gke(name: str) -> Check:
    fix = "name an EKS cluster that has Karpenter (eksCluster, context), or use cloud: gcp"
    return Check("credentials", "kubernetes", Verdict.FAIL, f"{name} {GKE}", fix)


def _eks(eks: Any, plan: PreflightPlan, client: "KubernetesClient") -> list[Check]:
    """Check that the EKS cluster of the settings is active, and that the kubeconfig leads to it."""
    from botocore.exceptions import ClientError

    name = plan.host_cluster
    try:
        cluster = eks.describe_cluster(name=name)["cluster"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        detail = f"there is no EKS cluster {name} in {plan.manifest.region}"
        fix = f"correct eksCluster or aws:region: aws eks list-clusters --region {plan.manifest.region}"
        return [Check("user", "eks cluster", Verdict.FAIL, detail, fix)]
    if cluster["status"] != "ACTIVE":
        detail = f"the EKS cluster {name} is {cluster['status']}"
        return [Check("user", "eks cluster", Verdict.FAIL, detail, "wait until it is ACTIVE")]
    if cluster["endpoint"].rstrip("/").lower() != client.server.rstrip("/").lower():
        detail = f"your kubeconfig leads to {client.server}, and {name} is {cluster['endpoint']}"
        fix = f"aws eks update-kubeconfig --name {name} --region {plan.manifest.region}"
        return [Check("user", "eks cluster", Verdict.FAIL, detail, fix), *_addresses(cluster)]
    active = Check("user", "eks cluster", Verdict.OK, f"{name} is active, version {cluster.get('version', 'unknown')}")
    return [active, *_addresses(cluster)]


def _addresses(cluster: dict[str, Any]) -> list[Check]:
    """Return a warning for pods with IPv6 addresses, which everything that they reach has to support."""
    if cluster.get("kubernetesNetworkConfig", {}).get("ipFamily") != "ipv6":
        return []
    detail = f"the pods of {cluster['name']} have IPv6 addresses: Everspot has never been run on such a cluster"
    return [Check("user", "pod addresses", Verdict.WARN, detail, "everspot preflight --probe, once it is declared")]


def _image(image: str) -> list[Check]:
    """Check an image of ECR. Only a node can tell of another registry whether it may pull."""
    match = _ECR.match(image)
    if match is None:
        return [Check("user", "image", Verdict.SKIP, f"{image} is no image of ECR: only a node can tell", "")]
    from botocore.exceptions import ClientError

    _, _, digest = image.partition("@")
    chosen = {"imageDigest": digest} if digest else {"imageTag": image.rpartition(":")[2]}
    try:
        aws_client(match["region"], "ecr").describe_images(
            registryId=match["account"], repositoryName=match["name"], imageIds=[chosen]
        )
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("ImageNotFoundException", "RepositoryNotFoundException"):
            raise
        fix = "push it, or name another (image): until then nothing starts"
        return [Check("user", "image", Verdict.FAIL, f"{image} does not exist", fix)]
    return [Check("user", "image", Verdict.OK, f"{image} exists")]


def _claim(client: "KubernetesClient", plan: PreflightPlan) -> list[Check]:
    """Check the claim with datasets. Nobody can create it before the namespace exists."""
    if not plan.datasets_claim:
        return []
    if client.find(f"/api/v1/namespaces/{plan.namespace}") is None:
        detail = f"{plan.datasets_claim} belongs into the namespace {plan.namespace}, which pulumi up creates"
        fix = "create the claim then, with ReadOnlyMany or ReadWriteMany: nothing is launched before"
        return [Check("user", "datasets claim", Verdict.SKIP, detail, fix)]
    return claim_checks(client, plan.datasets_claim, plan.zones)


def _taken_names(client: "KubernetesClient", plan: PreflightPlan) -> list[Check]:
    """Check that the namespace and the names of the nodes' objects are free, or this cluster's already."""
    cluster = plan.manifest.cluster
    places = {
        f"namespace {plan.namespace}": f"/api/v1/namespaces/{plan.namespace}",
        f"NodePool {cluster}": f"/apis/karpenter.sh/v1/nodepools/{cluster}",
        f"EC2NodeClass {cluster}": f"/apis/karpenter.k8s.aws/v1/ec2nodeclasses/{cluster}",
    }
    conflicts = []
    for name, path in places.items():
        existing = client.find(path)
        if existing is not None and existing["metadata"].get("labels", {}).get(CLUSTER_LABEL) != cluster:
            conflicts.append(name)
    if conflicts:
        fix = "name another namespace (namespace), or delete what is there"
        detail = f"{', '.join(conflicts)} exists and is not of {cluster}"
        return [Check("user", "namespace", Verdict.FAIL, detail, fix)]
    return [Check("user", "namespace", Verdict.OK, f"{plan.namespace} is free or of {cluster}")]


def access_checks(eks: Any, cluster: str, caller: str) -> list[Check]:
    """Return a check of each reading role that may read the Secrets of an EKS cluster; none if no role may.

    Args:
        eks: The client of EKS.
        cluster: The EKS cluster.
        caller: The ARN of the person, of whose account the roles are.
    """
    _, partition, _, _, account, _ = caller.split(":", 5)
    checks = []
    for name in READING_ROLES:
        role = f"arn:{partition}:iam::{account}:role/{BOOTSTRAP}-{name}"
        for policy in _policies(eks, cluster, role):
            title = policy.rpartition("/")[2]
            if title in _SHOW_SECRETS:
                detail = f"whoever opens a pull request reads all Secrets of {cluster}: {BOOTSTRAP}-{name} has {title}"
                fix = (
                    f"aws eks disassociate-access-policy --cluster-name {cluster} --principal-arn {role} "
                    f"--policy-arn {policy}, and give its access entry the group {READERS} (CHANGELOG.md)"
                )
                checks.append(Check("user", "cluster access", Verdict.FAIL, detail, fix))
    return checks


def _policies(eks: Any, cluster: str, role: str) -> Iterator[str]:
    """Yield the ARNs of the policies of a role's access entry; none without an entry or a cluster."""
    from botocore.exceptions import ClientError

    try:
        pages = eks.get_paginator("list_associated_access_policies").paginate(clusterName=cluster, principalArn=role)
        for page in pages:
            yield from (str(policy["policyArn"]) for policy in page["associatedAccessPolicies"])
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
