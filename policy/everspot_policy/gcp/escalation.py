"""Roles on a project that give access to everything in it.

Sources: Google Cloud, "Roles and permissions that allow privilege escalation" in the IAM documentation on service
account impersonation; Checkov's CKV_GCP_41 and SonarSource's S6408 for custom roles.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from everspot_core.validation.problems import Problem

from everspot_policy.gcp.identity import BROAD, grants
from everspot_policy.gcp.kinds import MEMBERS, POLICIES
from everspot_policy.reading import mapping, text, texts
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

CUSTOM = ("gcp:projects/iAMCustomRole:IAMCustomRole", "gcp:organizations/iAMCustomRole:IAMCustomRole")
GIVING = (
    "roles/deploymentmanager.editor",
    "roles/iam.organizationRoleAdmin",
    "roles/iam.roleAdmin",
    "roles/iam.securityAdmin",
    "roles/iam.serviceAccountAdmin",
    "roles/iam.serviceAccountKeyAdmin",
    "roles/resourcemanager.folderAdmin",
    "roles/resourcemanager.folderIamAdmin",
    "roles/resourcemanager.organizationAdmin",
    "roles/resourcemanager.projectIamAdmin",
)
"""Roles that write grants, roles or keys."""
LENDING = (
    "deploymentmanager.deployments.create",
    "iam.serviceAccountKeys.create",
    "iam.serviceAccounts.getAccessToken",
    "iam.serviceAccounts.implicitDelegation",
    "iam.serviceAccounts.signBlob",
    "iam.serviceAccounts.signJwt",
    "resourcemanager.folders.setIamPolicy",
    "resourcemanager.organizations.setIamPolicy",
)
"""Permissions that lend another identity, or give grants above a project. Who acts as accounts, or gives grants in a
project, may need it for what it deploys: those are judged where a ready-made role has them."""
LIMITED = re.compile(r"modifiedGrantsByRole[^&|]*\.hasOnly\(")
"""A condition on what may be granted (IAM documentation, "Set limits on granting roles")."""


@rule(
    "gcp-no-escalation",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="No identity can grant permissions without a limit, and so to itself",
    remedy="Grant such a role on a single account or bucket, or limit the grantable roles by a condition "
    "(modifiedGrantsByRole, hasOnly). In a custom role, leave out permissions that lend other identities.",
    types=(*MEMBERS, *POLICIES, *CUSTOM),
    checkov=("CKV_GCP_42",),
)
def no_escalation(subject: Subject) -> Iterator[Problem]:
    """Find roles that give roles or keys, on a project or on more, and custom roles that lend identities."""
    inputs = subject.inputs
    if subject.type in CUSTOM:
        lent = [each for each in texts(inputs.get("permissions")) if each in LENDING]
        if lent:
            yield Problem("permissions", f"{lent[0]} gives what another identity may do")
    elif BROAD.match(subject.type) and not _limited(inputs):
        for path, role, _ in grants(subject):
            if role in GIVING:
                yield Problem(path, f"{role} gives itself any other role")


def _limited(inputs: Mapping[str, Any]) -> bool:
    return LIMITED.search(text(mapping(inputs.get("condition")).get("expression"))) is not None


RULES: tuple[Rule, ...] = (no_escalation,)
