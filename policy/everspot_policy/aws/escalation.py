"""Calls that give all permissions to everybody who may make them on all resources.

Sources: Rhino Security Labs, "AWS IAM Privilege Escalation - Methods and Mitigation"; Checkov's CKV_AWS_286; IAM API
Reference. Calls that pass a role are the subject of `aws-pass-role-limited`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from everspot_core.validation.problems import Problem

from everspot_policy.aws.documents import EQUAL, IDENTITIES, actions, conditions, covers, everywhere, matches_every
from everspot_policy.aws.identity import PERMISSIONS, ROLE, allowed
from everspot_policy.reading import hidden, texts
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

ESCALATING = (
    "iam:addusertogroup",
    "iam:attachgrouppolicy",
    "iam:attachrolepolicy",
    "iam:attachuserpolicy",
    "iam:createaccesskey",
    "iam:createloginprofile",
    "iam:createpolicyversion",
    "iam:deleterolepermissionsboundary",
    "iam:deleteuserpermissionsboundary",
    "iam:putgrouppolicy",
    "iam:putrolepermissionsboundary",
    "iam:putrolepolicy",
    "iam:putuserpermissionsboundary",
    "iam:putuserpolicy",
    "iam:setdefaultpolicyversion",
    "iam:updateassumerolepolicy",
    "iam:updateloginprofile",
)
LIMITS = ("iam:permissionsboundary", "iam:policyarn")
TAGGED = ("aws:resourcetag/", "iam:resourcetag/")
_EVERYTHING = ("", ":", "iam:")


@rule(
    "aws-no-escalation",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="No identity can grant permissions without a limit, and so to itself",
    remedy="Name the roles, users and policies in Resource, or compare iam:PermissionsBoundary with a boundary. "
    "Writing any role's policy or trust allows everything.",
    types=(ROLE, *PERMISSIONS),
    checkov=("CKV_AWS_286", "CKV_AWS_289"),
)
def no_escalation(subject: Subject) -> Iterator[Problem]:
    """Find calls that hand out permissions, on all identities or all of a kind, without a limit."""
    for path, statement in allowed(subject):
        everything = everywhere(statement)
        if not (
            everything
            or any(matches_every(each, kind) for each in texts(statement.get("Resource")) for kind in IDENTITIES)
        ):
            continue
        if not _limited(statement) and (action := _escalating(statement, everything=everything)):
            yield Problem(path, f"allows {action} on {'all resources' if everything else 'all of a kind'}")


def _escalating(statement: Mapping[str, Any], *, everything: bool) -> str:
    """Return the action of a statement that grants more permissions. Actions on all of IAM have their own rule."""
    besides = statement.get("NotAction")
    if besides is not None and not hidden(besides) and not everything:
        remaining = [call for call in ESCALATING if not any(covers(each.lower(), call) for each in texts(besides))]
        return "all actions but some" if remaining else ""
    candidates = [each for each in actions(statement) if re.sub(r"[*?]", "", each) not in _EVERYTHING]
    return next((each for each in candidates if any(covers(each, call) for call in ESCALATING)), "")


def _limited(statement: Mapping[str, Any]) -> bool:
    """Return whether a condition limits the call to identities with a boundary or a tag, or to named policies."""
    for operator, key, values in conditions(statement):
        limiting = key in LIMITS or key.startswith(TAGGED)
        if limiting and operator.removeprefix("foranyvalue:") in EQUAL and all(each.strip("*?") for each in values):
            return True
    return False


RULES: tuple[Rule, ...] = (no_escalation,)
