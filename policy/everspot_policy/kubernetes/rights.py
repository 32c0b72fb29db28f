"""Rules about the rights in a Kubernetes cluster, and about who has them.

Source: Kubernetes, "Role Based Access Control Good Practices".
"""

from collections.abc import Iterator

from everspot_core.validation.problems import Problem

from everspot_policy.reading import inner, objects, text, texts
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

_RBAC = "kubernetes:rbac.authorization.k8s.io/*:"
RIGHTS = tuple(f"{_RBAC}{kind}" for kind in ("Role", "ClusterRole", "RolePatch", "ClusterRolePatch"))
BINDINGS = tuple(
    f"{_RBAC}{kind}" for kind in ("RoleBinding", "ClusterRoleBinding", "RoleBindingPatch", "ClusterRoleBindingPatch")
)
ESCALATING = ("escalate", "bind", "impersonate")
"""Verbs that give rights which their holder does not have."""
EVERYBODY = ("system:authenticated", "system:unauthenticated", "system:anonymous", "system:serviceaccounts")
"""Groups and users that are everybody who reaches the API server, or every pod."""
PUBLIC_ROLES = (
    "system:discovery", "system:basic-user", "system:public-info-viewer", "system:service-account-issuer-discovery",
)  # fmt: skip
"""The roles that Kubernetes itself grants to everybody (Kubernetes, "Using RBAC Authorization", API discovery
roles)."""
POWERFUL_ROLES = ("cluster-admin", "admin", "edit")
"""The ready-made roles that write."""


@rule(
    "kubernetes-no-wildcard-rights",
    Level.MANDATORY,
    Severity.HIGH,
    title="Roles name what they allow",
    remedy="Name resources and verbs in place of *, and each secret.",
    types=RIGHTS,
)
def no_wildcard_rights(subject: Subject) -> Iterator[Problem]:
    """Find rights for everything, and for all secrets."""
    for path, granted in objects(subject.inputs, "rules"):
        for name in ("apiGroups", "resources", "verbs"):
            if "*" in texts(granted.get(name)):
                yield Problem(f"{path}.{name}", "is *")
        if "secrets" in texts(granted.get("resources")) and not granted.get("resourceNames"):
            yield Problem(f"{path}.resources", "has all secrets: resourceNames names some")


@rule(
    "kubernetes-no-escalation",
    Level.MANDATORY,
    Severity.HIGH,
    title="No role gives itself or others more rights",
    remedy="Limit escalate, bind, impersonate and the making of tokens by resourceNames.",
    types=RIGHTS,
)
def no_escalation(subject: Subject) -> Iterator[Problem]:
    """Find rights by which somebody gets those of others."""
    for path, granted in objects(subject.inputs, "rules"):
        if granted.get("resourceNames"):
            continue
        for verb in ESCALATING:
            if verb in texts(granted.get("verbs")):
                yield Problem(f"{path}.verbs", f"has {verb}")
        if "serviceaccounts/token" in texts(granted.get("resources")) and "create" in texts(granted.get("verbs")):
            yield Problem(f"{path}.resources", "makes tokens of all service accounts")


@rule(
    "kubernetes-no-rights-for-everybody",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="No right is granted to everybody",
    remedy="Bind roles to users, groups or service accounts by name.",
    types=BINDINGS,
)
def no_rights_for_everybody(subject: Subject) -> Iterator[Problem]:
    """Find bindings to everybody, and those of powerful roles to all pods of a namespace."""
    role = text(inner(subject.inputs, "roleRef").get("name"))
    if role in PUBLIC_ROLES:
        return
    for path, bound in objects(subject.inputs, "subjects"):
        name = text(bound.get("name"))
        pods = name.startswith("system:serviceaccounts:") and role in POWERFUL_ROLES
        if text(bound.get("kind")) in ("Group", "User") and (name in EVERYBODY or pods):
            yield Problem(f"{path}.name", f"{name} gets the rights of {role or 'the role'}")


RULES: tuple[Rule, ...] = (no_wildcard_rights, no_escalation, no_rights_for_everybody)
