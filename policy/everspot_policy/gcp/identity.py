"""Rules about permissions and the members that have them."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from everspot_core.validation.problems import Problem

from everspot_policy.claims import SHARED_CLAIMS, SHARED_ISSUERS, names_somebody
from everspot_policy.gcp.kinds import LAUNCHES, MEMBERS, POLICIES
from everspot_policy.reading import document, hidden, mapping, objects, text, texts
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

DATASET, DATASET_ACCESS = "gcp:bigquery/dataset:Dataset", "gcp:bigquery/datasetAccess:DatasetAccess"
EVERYBODY = ("allUsers", "allAuthenticatedUsers")
BASIC = ("roles/owner", "roles/editor", "roles/viewer")
IMPERSONATING = (
    "roles/iam.serviceAccountUser",
    "roles/iam.serviceAccountTokenCreator",
    "roles/iam.workloadIdentityUser",
)
BROAD = re.compile(r"gcp:(projects|folder|organizations)/")
"""Types of resources that contain other resources; a grant on them includes these."""
DEFAULT_ACCOUNT = re.compile(r"(default|\d+-compute@developer\.gserviceaccount\.com)")
GITHUB = "https://token.actions.githubusercontent.com"
LITERAL = re.compile(r"'[^']*'|\"[^\"]*\"")
COMPARISON = re.compile(
    rf"(assertion|attribute|google)\.(?P<claim>\w+)(?P<operator> *== *| *in *|\.startsWith)"
    rf"(?P<values>[\[(]? *({LITERAL.pattern})( *, *({LITERAL.pattern}))* *[\])]?)"
)
"""The whole of a comparison of a claim with texts."""
_NAME = r"['\"][\w.-]+/[\w.-]+['\"]"
_ID = r"['\"]\d+['\"]"
_SUBJECT = r"['\"]repo:[\w.-]+/[\w.-]+:[^'\"]*['\"]"
_COMPARED = {
    r"(assertion|attribute)\.repository": _NAME,
    r"(assertion|attribute)\.repository_id": _ID,
    r"(assertion\.sub|google\.subject)": _SUBJECT,
}
REPOSITORY = re.compile(
    "|".join(rf"{claim} *(== *{value}|in *\[ *{value}( *, *{value})* *\])" for claim, value in _COMPARED.items())
    + rf"|(assertion\.sub|google\.subject)\.startsWith\( *{_SUBJECT} *\)?"
)
"""The whole of a comparison with one repository or several, each named in full. GitHub's ids are numbers, and a subject
begins with `repo:OWNER/NAME:`."""


def grants(subject: Subject) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the grants of a resource: the path, the role, and the members."""
    inputs = subject.inputs
    yield "role", text(inputs.get("role")), texts(inputs.get("member")) + texts(inputs.get("members"))
    policy: Any = document(inputs.get("policyData"))
    for path, each in objects(mapping(policy), "bindings"):
        yield f"policyData.{path}", text(each.get("role")), texts(each.get("members"))


@rule(
    "gcp-own-service-account",
    Level.MANDATORY,
    Severity.HIGH,
    title="Instances have their own service account",
    remedy="Declare an account with only the grants that are needed. The scope cloud-platform is then right; with the"
    " default account it would allow everything.",
    types=LAUNCHES,
    checkov=("CKV_GCP_30", "CKV_GCP_31"),
)
def own_service_account(subject: Subject) -> Iterator[Problem]:
    """Yield the project's default account, named or left to be taken. No account at all is fine."""
    account = subject.inputs.get("serviceAccount")
    if account is None or hidden(account):
        return
    email = mapping(account).get("email")
    if hidden(email):
        return
    if not text(email) or DEFAULT_ACCOUNT.fullmatch(text(email)):
        yield Problem("serviceAccount.email", "is the project's default account")


@rule(
    "gcp-no-basic-roles",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="No basic role (owner, editor, viewer) is granted",
    remedy="Grant roles of the used services, or a custom role.",
    types=(*MEMBERS, *POLICIES),
    checkov=("CKV_GCP_117", "CKV_GCP_115", "CKV_GCP_116"),
)
def no_basic_roles(subject: Subject) -> Iterator[Problem]:
    """Find basic roles, in every form of a grant."""
    for path, role, _ in grants(subject):
        if role in BASIC:
            yield Problem(path, f"{role} is a basic role")


@rule(
    "gcp-not-for-everybody",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="Nothing is granted to everybody, nor to all Google accounts",
    remedy="Name the members: accounts, groups, or a domain.",
    types=(*MEMBERS, *POLICIES, DATASET, DATASET_ACCESS),
    checkov=("CKV_GCP_28",),
)
def not_for_everybody(subject: Subject) -> Iterator[Problem]:
    """Find grants to allUsers and allAuthenticatedUsers."""
    accesses = [("", subject.inputs)] if subject.type == DATASET_ACCESS else objects(subject.inputs, "accesses")
    for path, each in accesses:
        for name in ("specialGroup", "iamMember"):
            if each.get(name) in EVERYBODY:
                yield Problem(f"{path}.{name}".lstrip("."), f"grants access to {each[name]}")
    for path, role, members in grants(subject):
        for member in EVERYBODY:
            if member in members:
                yield Problem(path, f"grants {role or 'a role'} to {member}")


@rule(
    "gcp-impersonation-named",
    Level.MANDATORY,
    Severity.HIGH,
    title="Permission to act as service accounts is granted on single accounts",
    remedy="Grant the role on the account, with serviceaccount.IAMMember. On the project it covers every account.",
    types=(*MEMBERS, *POLICIES),
    checkov=("CKV_GCP_41", "CKV_GCP_44", "CKV_GCP_45", "CKV_GCP_49"),
)
def impersonation_named(subject: Subject) -> Iterator[Problem]:
    """Find roles to act as accounts, granted on a project or on more."""
    if BROAD.match(subject.type):
        for path, role, _ in grants(subject):
            if role in IMPERSONATING:
                yield Problem(path, f"{role} is granted for every account")


@rule(
    "gcp-trust-named",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="A workload identity pool trusts one GitHub repository, or a named customer of another shared issuer",
    remedy="Set attributeCondition, such as assertion.repository_id == '…', because all repositories have the same "
    "issuer.",
    types=("gcp:iam/workloadIdentityPoolProvider:WorkloadIdentityPoolProvider",),
    checkov=("CKV_GCP_125",),
)
def trust_named(subject: Subject) -> Iterator[Problem]:
    """Find providers of a shared issuer without a condition on the repository, or on somebody named."""
    issuer = text(mapping(subject.inputs.get("oidc")).get("issuerUri")).rstrip("/")
    condition = subject.inputs.get("attributeCondition")
    if hidden(condition):
        return
    if issuer == GITHUB and not _each_alternative(text(condition), _names_repository):
        yield Problem("attributeCondition", "has to compare repository_id or repository")
    elif issuer.removeprefix("https://") in SHARED_ISSUERS and not _each_alternative(text(condition), _names_holder):
        yield Problem("attributeCondition", f"has to compare a claim, because {issuer} signs for all its customers")


def _each_alternative(condition: str, singles_out: Callable[[str], bool]) -> bool:
    """Return whether each alternative of a condition (CEL) has a part that singles somebody out. What is not read here,
    such as a negated group or a choice by `?`, counts as if it held for everybody."""
    if "?" in condition:
        return False
    return all(
        any(singles_out(part.strip(" \t\n()")) for part in alternative.split("&&"))
        for alternative in _without_negated_groups(condition).split("||")
    )


def _names_repository(comparison: str) -> bool:
    return REPOSITORY.fullmatch(comparison) is not None


def _names_holder(comparison: str) -> bool:
    """Return whether a comparison holds for named holders of an issuer's tokens alone."""
    match = COMPARISON.fullmatch(comparison)
    if match is None or match["claim"] in SHARED_CLAIMS:
        return False
    values = [value[1:-1] for value in LITERAL.findall(match["values"])]
    wildcard = "*" if match["operator"] == ".startsWith" else ""
    return bool(values) and all(names_somebody(value + wildcard) for value in values)


def _without_negated_groups(condition: str) -> str:
    """Return the condition with `true` in place of each group that is negated."""
    while (begin := re.search(r"!\s*\(", condition)) is not None:
        depth, end = 1, begin.end()
        while depth and end < len(condition):
            depth += {"(": 1, ")": -1}.get(condition[end], 0)
            end += 1
        condition = f"{condition[: begin.start()]}true{condition[end:]}"
    return condition


@rule(
    "gcp-no-account-keys",
    Level.MANDATORY,
    Severity.HIGH,
    title="No service account key is created, since keys do not expire",
    remedy="Attach the account to the workload, or let an existing identity impersonate it.",
    types=("gcp:serviceaccount/key:Key",),
)
def no_account_keys(subject: Subject) -> Iterator[Problem]:
    """Find every key, because its secret is stored in the state."""
    yield Problem("", "is a key that never expires")


RULES: tuple[Rule, ...] = (
    own_service_account, no_basic_roles, not_for_everybody, impersonation_named, trust_named, no_account_keys,
)  # fmt: skip
