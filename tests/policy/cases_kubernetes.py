"""Cases for the objects of a Kubernetes cluster. The engine is not shown them: its provider asks an API server."""

from typing import Any

from cases import Cases
from everspot_core.cluster.declared import UNKNOWN

POOL = "kubernetes:karpenter.sh/v1:NodePool"
CLASS = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"
TEMPLATE = "kubernetes:core/v1:PodTemplate"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole"
LABELS = {"labels": {"everspot/cluster": "dev"}}
DRIFT = {"nodes": "0", "reasons": ["Drifted"]}


def pool(
    policy: Any = "WhenEmpty", age: Any = "Never", budgets: Any = (DRIFT,), labels: Any = LABELS
) -> dict[str, Any]:
    """A NodePool."""
    budgets = list(budgets) if isinstance(budgets, tuple) else budgets
    return {
        "spec": {
            "disruption": {"consolidationPolicy": policy, "budgets": budgets},
            "template": {"metadata": labels, "spec": {"expireAfter": age}},
        }
    }


def node(**spec: Any) -> dict[str, Any]:
    """An EC2NodeClass."""
    return {"spec": spec}


def template(annotations: Any = None, labels: Any = LABELS, **spec: Any) -> dict[str, Any]:
    """A PodTemplate."""
    return {"template": {"metadata": {**labels, "annotations": annotations or {}}, "spec": spec}}


c = Cases()

c.select("kubernetes-nodes-end-empty", POOL)
c.good(
    pool(),
    pool("WhenEmptyOrUnderutilized", "720h", (), {}),  # no training cluster's
    pool(budgets=({"nodes": "10%"}, DRIFT)),
    pool(budgets=({"nodes": "0"},)),
    pool(UNKNOWN, UNKNOWN, UNKNOWN),
    {"spec": UNKNOWN},
    engine=False,
)
c.bad(pool("WhenEmptyOrUnderutilized"), "spec.disruption.consolidationPolicy", engine=False)
c.bad(pool(None), "spec.disruption.consolidationPolicy", engine=False)
c.bad(pool(age="720h"), "spec.template.spec.expireAfter", engine=False)
c.bad(pool(age=None), "spec.template.spec.expireAfter", engine=False)
c.bad(pool(budgets=({"nodes": "0", "reasons": ["Empty"]},)), "spec.disruption.budgets", engine=False)
c.bad(pool(budgets=({**DRIFT, "schedule": "@daily", "duration": "1h"},)), "spec.disruption.budgets", engine=False)

c.select("kubernetes-agents-evictable", TEMPLATE)
c.good(template(), template({"karpenter.sh/do-not-disrupt": "true"}, {}), {"template": UNKNOWN}, engine=False)
c.bad(
    template({"karpenter.sh/do-not-disrupt": "true"}),
    "template.metadata.annotations.karpenter.sh/do-not-disrupt",
    engine=False,
)

c.select("kubernetes-node-imdsv2", CLASS)
c.good(
    node(), node(metadataOptions={"httpTokens": "required", "httpPutResponseHopLimit": 1}),
    node(metadataOptions=UNKNOWN), engine=False,
)  # fmt: skip
c.bad(node(metadataOptions={"httpTokens": "optional"}), "spec.metadataOptions.httpTokens", engine=False)
c.bad(
    node(metadataOptions={"httpPutResponseHopLimit": 2}), "spec.metadataOptions.httpPutResponseHopLimit", engine=False
)

c.select("kubernetes-node-encrypted", CLASS)
c.good(node(), node(blockDeviceMappings=[{"ebs": {"encrypted": True}}, {"ebs": UNKNOWN}]), engine=False)
c.bad(
    node(blockDeviceMappings=[{"ebs": {"encrypted": True}}, {"ebs": {"volumeSize": "8Gi"}}]),
    "spec.blockDeviceMappings[1].ebs.encrypted",
    engine=False,
)

c.select("kubernetes-node-private", CLASS)
c.good(node(), node(associatePublicIPAddress=False), node(associatePublicIPAddress=UNKNOWN), engine=False)
c.bad(node(associatePublicIPAddress=True), "spec.associatePublicIPAddress", engine=False)

TAGS = {"Project": "vision", "Team": "ml", "Environment": "dev"}
c.select("kubernetes-node-tags", CLASS)
c.good(node(tags=TAGS), node(tags=UNKNOWN), node(tags={**TAGS, "Team": UNKNOWN}), {"spec": UNKNOWN}, engine=False)
c.bad(node(), "spec.tags", engine=False)
c.bad(node(tags={**TAGS, "Team": " "}), "spec.tags", engine=False)

c.select("kubernetes-nodes-limited", POOL)
c.good(
    {"spec": {"limits": {"nodes": 8}}}, {"spec": {"limits": {"cpu": "64"}}}, {"spec": {"limits": UNKNOWN}},
    {"spec": UNKNOWN}, engine=False,
)  # fmt: skip
c.bad(pool(), "spec.limits", engine=False)
c.bad({"spec": {"limits": {}}}, "spec.limits", engine=False)


def choosing(types: Any, zones: Any, markets: Any = ("spot", "on-demand"), operator: str = "In") -> dict[str, Any]:
    """A NodePool with these requirements."""
    chosen = {
        "node.kubernetes.io/instance-type": types, "topology.kubernetes.io/zone": zones,
        "karpenter.sh/capacity-type": markets,
    }  # fmt: skip
    requirements = [
        {"key": key, "operator": operator, "values": list(values) if isinstance(values, tuple) else values}
        for key, values in chosen.items()
    ]
    return {"spec": {"template": {"spec": {"requirements": requirements}}}}


c.select("kubernetes-spot-pools", POOL)
c.good(
    choosing(("a", "b", "c"), ("1", "2")), choosing(("a",), ("1",), ("on-demand",)), choosing(UNKNOWN, ("1",)),
    choosing(("a",), UNKNOWN), choosing(("a",), ("1",), UNKNOWN), choosing(("a",), ("1",), operator="NotIn"),
    {"spec": {"template": {"spec": {"requirements": UNKNOWN}}}}, pool(), engine=False,
)  # fmt: skip
c.bad(choosing(("a", "b"), ("1", "2")), "spec.template.spec.requirements", engine=False)

c.select("kubernetes-pods-confined", TEMPLATE)
c.good(
    template(containers=[{"securityContext": {"allowPrivilegeEscalation": False}}], volumes=[{"emptyDir": {}}]),
    engine=False,
)
c.bad(
    template(
        containers=[{"securityContext": {"privileged": True}}], hostNetwork=True,
        volumes=[{"emptyDir": {}}, {"hostPath": {"path": "/"}}],
    ),
    "template.spec.hostNetwork",
    "template.spec.containers[0].securityContext.privileged",
    "template.spec.volumes[1].hostPath",
    engine=False,
)  # fmt: skip
c.select("kubernetes-pods-confined", DEPLOYMENT)
c.bad({"spec": template(hostPID=True)}, "spec.template.spec.hostPID", engine=False)
for other in ("apps/v1:ReplicaSet", "apps/v1:DeploymentPatch", "core/v1:ReplicationController"):
    c.select("kubernetes-pods-confined", f"kubernetes:{other}")
    c.bad({"spec": template(hostPID=True)}, "spec.template.spec.hostPID", engine=False)
c.select("kubernetes-pods-confined", "kubernetes:batch/v1:CronJob")
c.bad(
    {"spec": {"jobTemplate": {"spec": template(hostNetwork=True)}}},
    "spec.jobTemplate.spec.template.spec.hostNetwork",
    engine=False,
)
c.select("kubernetes-pods-confined", "kubernetes:core/v1:PodPatch")
c.bad({"spec": {"hostIPC": True}}, "spec.hostIPC", engine=False)


def filtered(kind: Any, **container: Any) -> dict[str, Any]:
    """A pod with a seccomp profile, perhaps with one of its container."""
    profile = {"seccompProfile": {"type": kind}}
    own = {"seccompProfile": {"type": container["own"]}} if container else {}
    return template(securityContext=profile, containers=[{"securityContext": own}])


c.select("kubernetes-pods-filtered", TEMPLATE)
c.good(
    filtered("RuntimeDefault"), filtered("RuntimeDefault", own="RuntimeDefault"), filtered(UNKNOWN), template(),
    {"template": UNKNOWN}, engine=False,
)  # fmt: skip
c.bad(filtered("Localhost"), "template.spec.securityContext.seccompProfile.type", engine=False)
c.bad(
    filtered("RuntimeDefault", own="Unconfined"),
    "template.spec.containers[0].securityContext.seccompProfile.type",
    engine=False,
)
c.bad(
    template(ephemeralContainers=[{"securityContext": {"seccompProfile": {"type": "Unconfined"}}}]),
    "template.spec.ephemeralContainers[0].securityContext.seccompProfile.type",
    engine=False,
)
c.select("kubernetes-pods-filtered", DEPLOYMENT)
c.bad({"spec": filtered("Unconfined")}, "spec.template.spec.securityContext.seccompProfile.type", engine=False)

c.select("kubernetes-no-wildcard-rights", ROLE)
c.good(
    {"rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]},
    {"rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["get"]}]},
    {"rules": UNKNOWN},
    engine=False,
)
c.bad({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]}, "rules[0].verbs", engine=False)
c.bad({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}, "rules[0].resources", engine=False)

c.select("kubernetes-no-escalation", ROLE)
ROLES = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"]}
TOKENS = {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}
c.good(
    {"rules": [{**ROLES, "verbs": ["get", "list", "create"]}]},
    {"rules": [{**ROLES, "verbs": ["bind"], "resourceNames": ["view"]}]},
    {"rules": [{**TOKENS, "resourceNames": ["agent"]}]},
    {"rules": [{**ROLES, "verbs": UNKNOWN}]},
    {"rules": UNKNOWN},
    engine=False,
)
for verb in ("escalate", "bind", "impersonate"):
    c.bad({"rules": [{**ROLES, "verbs": ["get", verb]}]}, "rules[0].verbs", engine=False)
c.bad({"rules": [TOKENS]}, "rules[0].resources", engine=False)


def bound(name: Any, role: Any = "cluster-admin", kind: str = "Group") -> dict[str, Any]:
    """A binding of a role to one subject."""
    return {"roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [{"kind": kind, "name": name}]}


for binding in ("ClusterRoleBinding", "RoleBinding", "ClusterRoleBindingPatch"):
    c.select("kubernetes-no-rights-for-everybody", f"kubernetes:rbac.authorization.k8s.io/v1:{binding}")
    c.good(
        bound("ml-admins"), bound("system:authenticated", "system:basic-user"), bound(UNKNOWN),
        bound("system:serviceaccounts:kube-system", "view"), bound("default", kind="ServiceAccount"),
        {"subjects": UNKNOWN, "roleRef": UNKNOWN}, engine=False,
    )  # fmt: skip
    for everybody in ("system:authenticated", "system:unauthenticated", "system:serviceaccounts"):
        c.bad(bound(everybody), "subjects[0].name", engine=False)
    c.bad(bound("system:authenticated", "reader"), "subjects[0].name", engine=False)
    c.bad(bound("system:authenticated", UNKNOWN), "subjects[0].name", engine=False)
    c.bad(bound("system:anonymous", "view", kind="User"), "subjects[0].name", engine=False)
    c.bad(bound("system:serviceaccounts:web", "edit"), "subjects[0].name", engine=False)


def balanced(*ranges: str, annotations: Any = None, kind: str = "LoadBalancer", **spec: Any) -> dict[str, Any]:
    """A service, perhaps with a load balancer."""
    sources = {"loadBalancerSourceRanges": list(ranges)} if ranges else {}
    return {"metadata": {"annotations": annotations or {}}, "spec": {"type": kind, **sources, **spec}}


SOURCES = "service.beta.kubernetes.io/load-balancer-source-ranges"
c.select("kubernetes-no-open-load-balancer", "kubernetes:core/v1:Service")
c.good(
    balanced("203.0.113.0/24"), balanced(kind="ClusterIP"), balanced(kind="NodePort"), balanced(kind=UNKNOWN),
    balanced(loadBalancerSourceRanges=UNKNOWN), balanced(annotations=UNKNOWN),
    balanced(annotations={"service.beta.kubernetes.io/aws-load-balancer-scheme": "internal"}),
    balanced(annotations={"networking.gke.io/load-balancer-type": "Internal"}),
    balanced(annotations={SOURCES: "203.0.113.0/24, 198.51.100.0/24"}), balanced(annotations={SOURCES: UNKNOWN}),
    {"spec": UNKNOWN}, {}, engine=False,
)  # fmt: skip
c.bad(balanced(), "spec.loadBalancerSourceRanges", engine=False)
c.bad(balanced("10.0.0.0/8", "0.0.0.0/0"), "spec.loadBalancerSourceRanges", engine=False)
c.bad(
    balanced("0.0.0.0/1", "128.0.0.0/1"), "spec.loadBalancerSourceRanges", "spec.loadBalancerSourceRanges", engine=False
)
c.bad(
    balanced(annotations={"service.beta.kubernetes.io/aws-load-balancer-scheme": "internet-facing"}),
    "spec.loadBalancerSourceRanges",
    engine=False,
)
c.bad(balanced(annotations={SOURCES: "0.0.0.0/0"}), f'metadata.annotations["{SOURCES}"]', engine=False)

CASES = c.listed
