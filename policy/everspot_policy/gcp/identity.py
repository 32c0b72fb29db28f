"""Rules about permissions and the members that have them."""

import re
from collections.abc import Iterator
from typing import Any

from everspot_core.validation.problems import Problem

from everspot_policy.gcp.kinds import LAUNCHES, MEMBERS, POLICIES
from everspot_policy.reading import document, hidden, mapping, objects, text, texts
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

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
REPOSITORY = re.compile(
    r"(?<!!)\b(assertion\.(repository|repository_id)|attribute\.(repository|repository_id)|google\.subject|assertion\.sub)"
    r"\s*(==|in\b|\.startsWith\b)[\s(\[]*['\"][^'\"]{2,}"
)
"""A comparison with a text: with itself, everything is equal."""


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
    twins=("CKV_GCP_30", "CKV_GCP_31"),
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
    twins=("CKV_GCP_117", "CKV_GCP_115", "CKV_GCP_116"),
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
    types=(*MEMBERS, *POLICIES),
    twins=("CKV_GCP_28",),
)
def not_for_everybody(subject: Subject) -> Iterator[Problem]:
    """Find grants to allUsers and allAuthenticatedUsers."""
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
    twins=("CKV_GCP_41", "CKV_GCP_44", "CKV_GCP_45", "CKV_GCP_49"),
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
    title="A workload identity pool trusts one GitHub repository, not all of them",
    remedy="Set attributeCondition, such as assertion.repository_id == '…', because all repositories have the same "
    "issuer.",
    types=("gcp:iam/workloadIdentityPoolProvider:WorkloadIdentityPoolProvider",),
    twins=("CKV_GCP_125",),
)
def trust_named(subject: Subject) -> Iterator[Problem]:
    """Find providers for GitHub without a condition on the repository."""
    if text(mapping(subject.inputs.get("oidc")).get("issuerUri")).rstrip("/") != GITHUB:
        return
    condition = subject.inputs.get("attributeCondition")
    if not hidden(condition) and not all(REPOSITORY.search(each) for each in text(condition).split("||")):
        yield Problem("attributeCondition", "has to compare repository_id or repository")


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
