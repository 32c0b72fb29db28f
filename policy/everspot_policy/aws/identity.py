"""Rules about permissions and the principals that have them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from everspot_core.validation.problems import Problem

from everspot_policy.aws.documents import (
    ANYBODY,
    EQUAL,
    IDENTITIES,
    actions,
    allows,
    conditions,
    covers,
    everywhere,
    matches_every,
    narrowed,
    principals,
    statements,
)
from everspot_policy.claims import SHARED_CLAIMS, SHARED_ISSUERS, names_somebody
from everspot_policy.reading import hidden, objects, text, texts
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

ROLE = "aws:iam/role:Role"
PERMISSIONS = (
    "aws:iam/rolePolicy:RolePolicy",
    "aws:iam/policy:Policy",
    "aws:iam/userPolicy:UserPolicy",
    "aws:iam/groupPolicy:GroupPolicy",
    "aws:ssoadmin/permissionSetInlinePolicy:PermissionSetInlinePolicy",
)
ATTACHMENTS = (
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
    "aws:iam/policyAttachment:PolicyAttachment",
    "aws:iam/userPolicyAttachment:UserPolicyAttachment",
    "aws:iam/groupPolicyAttachment:GroupPolicyAttachment",
    "aws:iam/rolePolicyAttachmentsExclusive:RolePolicyAttachmentsExclusive",
    "aws:iam/userPolicyAttachmentsExclusive:UserPolicyAttachmentsExclusive",
    "aws:iam/groupPolicyAttachmentsExclusive:GroupPolicyAttachmentsExclusive",
)
_ATTACHED = ("managedPolicyArns", "policyArns", "policyArn")
"""Fields that name policies: of a role, of all attachments of an identity, of one attachment."""
HANDING_OVER = "iam:passrole"
TOO_MUCH = ("AdministratorAccess", "PowerUserAccess", "IAMFullAccess")
"""Policies of AWS that give everything, or the means to take it."""

REPOSITORY = re.compile(r"repo:[^*?/:]+/[^*?/:]+(:.*)?")
"""One repository in a job's subject; its id stands after `@` in what GitHub issues since 2026."""

GITHUB = "token.actions.githubusercontent.com"
WHO = (f"{GITHUB}:sub", f"{GITHUB}:repository", f"{GITHUB}:repository_id")
PRESENT_OR_NOT = ("ifexists", "forallvalues:")
"""Parts of operators that hold where the claim is absent."""


def documents(subject: Subject) -> Iterator[tuple[str, Any]]:
    """Yield the documents of permissions of a resource, by path."""
    if subject.type == ROLE:
        for path, each in objects(subject.inputs, "inlinePolicies"):
            yield f"{path}.policy", each.get("policy")
    else:
        for name in ("policy", "inlinePolicy"):
            yield name, subject.inputs.get(name)


def allowed(subject: Subject) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the permissions in a resource's documents, by path."""
    for path, value in documents(subject):
        for index, statement in statements(value):
            if allows(statement):
                yield f"{path}.Statement[{index}]", statement


@rule(
    "aws-no-star-permissions",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="No policy allows all actions on all resources",
    remedy="Name the actions and their resources. NotAction also allows all future actions.",
    types=(ROLE, *PERMISSIONS, *ATTACHMENTS),
    checkov=("CKV_AWS_62", "CKV_AWS_63", "CKV_AWS_274", "CKV_AWS_289", "CKV_AWS_290"),
)
def no_star_permissions(subject: Subject) -> Iterator[Problem]:
    """Yield all actions, or all of IAM, on all resources; AWS's own policies that come to the same."""
    for path, statement in allowed(subject):
        resources = texts(statement.get("Resource"))
        iam = all(any(matches_every(resource, kind) for resource in resources) for kind in IDENTITIES)
        if not (everywhere(statement) or iam):
            continue
        if "NotAction" in statement and everywhere(statement):
            yield Problem(path, "allows all actions but some on all resources")
        for action in actions(statement):
            if "*" in action and re.sub(r"[*?]", "", action) in ("", ":", "iam:"):
                yield Problem(path, f"allows {action} on {'all resources' if everywhere(statement) else 'all of IAM'}")
    for field in _ATTACHED:
        for arn in texts(subject.inputs.get(field)):
            if arn.rpartition("/")[2] in TOO_MUCH and ":aws:policy/" in arn:
                yield Problem(field, f"{arn.rpartition('/')[2]} is too much")


@rule(
    "aws-pass-role-limited",
    Level.MANDATORY,
    Severity.HIGH,
    title="iam:PassRole is limited to named roles",
    remedy="Name the roles in Resource. A principal that may pass every role has the permissions of every role.",
    types=(ROLE, *PERMISSIONS),
    checkov=("CKV_AWS_286",),
)
def pass_role_limited(subject: Subject) -> Iterator[Problem]:
    """Find iam:PassRole on all resources, also as a part of `iam:*` or `iam:*Role`."""
    for path, statement in allowed(subject):
        passing = [action for action in actions(statement) if covers(action, HANDING_OVER)]
        besides = statement.get("NotAction")
        if besides is not None and not hidden(besides):
            passing += (
                [] if any(covers(each.lower(), HANDING_OVER) for each in texts(besides)) else ["all actions but some"]
            )
        all_roles = any(matches_every(role, "role") for role in texts(statement.get("Resource")))
        if passing and (everywhere(statement) or all_roles):
            yield Problem(path, f"allows {passing[0]} on all roles")


@rule(
    "aws-trust-named",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="Roles trust a service, a named account or role, or the jobs of one repository",
    remedy="Name the principals. For GitHub, compare sub, repository or repository_id with one repository, with an "
    "operator that fails if the claim is absent. For other issuers, compare sub.",
    types=(ROLE,),
    checkov=("CKV_AWS_60", "CKV_AWS_61", "CKV_AWS_358"),
)
def trust_named(subject: Subject) -> Iterator[Problem]:
    """Find trust in everybody, trust in GitHub that is not trust in one repository of it, and trust in all that another
    issuer signs for."""
    for index, statement in statements(subject.inputs.get("assumeRolePolicy")):
        if not allows(statement):
            continue
        path = f"assumeRolePolicy.Statement[{index}]"
        if "NotPrincipal" in statement:
            yield Problem(path, "trusts everybody but some")
        for kind, name in principals(statement):
            if name == ANYBODY and not narrowed(statement, ORGANIZED):
                yield Problem(path, "trusts everybody")
            if kind == "Federated" and GITHUB in name and not _one_repository(statement):
                yield Problem(path, "trusts jobs of more than one repository of GitHub")
            elif kind == "Federated" and ":saml-provider/" not in name and not _names_holder(statement):
                issuer = name.rpartition(":oidc-provider/")[2] or name
                yield Problem(path, f"trusts everybody whom {issuer} signs for")


ORGANIZED = (
    "aws:principalorgid",
    "aws:principalorgpaths",
    "aws:principalaccount",
    "aws:principalarn",
    "aws:sourceaccount",
)
"""Keys of conditions that tell an organization's own from everybody."""


OWN_AUDIENCE = ("cognito-identity.amazonaws.com", "accounts.google.com")
"""Issuers whose key `aud` is the id of one customer's identity pool or client (IAM User Guide, "Available keys for AWS
OIDC federation")."""


SHARED = SHARED_ISSUERS | {
    "cognito-identity.amazonaws.com", "oidc.codefresh.io", "oidc-configuration.audit-log.githubusercontent.com",
    "proidc.upbound.io", "sandboxes.cloud", "scalr.io", "studio.datachain.ai/api", "tokens.cloud.shisho.dev",
    "sts.windows.net/33e01921-4d64-4f8c-a055-5bdaffd5e33d",
}  # fmt: skip
"""Issuers whose audience says nothing of the customer (IAM User Guide, "Identity-provider controls for shared OIDC
providers"). The tenant of Azure AD is Microsoft Sentinel's."""
CLUSTER = "oidc.eks."
"""Beginning of the issuers of EKS's clusters, each of which signs for all pods of its cluster."""


def _names_holder(statement: Mapping[str, Any]) -> bool:
    """Return whether a condition holds for named holders of an issuer's tokens alone. A key of another issuer than the
    statement's holds for nobody."""
    for operator, key, values in conditions(statement):
        issuer, _, claim = key.rpartition(":")
        shared = issuer.rstrip("/") in SHARED or issuer.startswith(CLUSTER)
        own_audience = claim == "aud" and issuer in OWN_AUDIENCE
        if issuer in ("", "aws", "sts") or (shared and claim in SHARED_CLAIMS and not own_audience):
            continue
        equal = operator.removeprefix("foranyvalue:") in EQUAL
        if equal and values and all(names_somebody(value) for value in values):
            return True
    return False


def _one_repository(statement: Mapping[str, Any]) -> bool:
    """Return whether a condition holds for the jobs of one repository alone."""
    for operator, key, values in conditions(statement):
        plain = operator.removeprefix("foranyvalue:")
        if key not in WHO or not plain.startswith("string") or any(part in operator for part in PRESENT_OR_NOT):
            continue
        if "not" in plain or not values:
            continue
        if key.endswith(":sub") and all(REPOSITORY.fullmatch(value) for value in values):
            return True
        if not key.endswith(":sub") and all(text(value) and not set("*?") & set(value) for value in values):
            return True
    return False


@rule(
    "aws-no-access-keys",
    Level.MANDATORY,
    Severity.HIGH,
    title="No access key is created, since keys do not expire",
    remedy="Use roles: an instance's own, or one that trusts an existing identity.",
    types=("aws:iam/accessKey:AccessKey",),
)
def no_access_keys(subject: Subject) -> Iterator[Problem]:
    """Find every access key, because its secret is stored in the state."""
    yield Problem("", "is a key that never expires")


RULES: tuple[Rule, ...] = (no_star_permissions, pass_role_limited, trust_named, no_access_keys)
