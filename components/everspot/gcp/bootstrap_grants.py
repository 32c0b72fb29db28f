"""The jobs that become the service accounts of reviews on Google Cloud, and the permissions of the accounts.

The lists of permissions are those of `deployers`, which the tests with the real engine compare with its calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from everspot_clouds.gcp import deployers
from pulumi_gcp import iam, kms, serviceaccount

from everspot.common import former_name, name_by_target
from everspot.gcp.granting import Granting
from everspot.gcp.policies import Condition
from everspot.repository import ISSUER, RepositoryArgs, ReviewPart, deployed_by, merged_ref, subjects

POOL, PROVIDER = "everspot-reviews", "github"
SUBJECT_AT_MOST = 127
"""Characters of `google.subject` (IAM documentation, "Workload Identity Federation", attribute mappings)."""

USER, IMPERSONATOR = "roles/iam.workloadIdentityUser", "roles/iam.serviceAccountTokenCreator"

MAPPING = {
    "google.subject": "assertion.sub",
    "attribute.repository_id": "assertion.repository_id",
    "attribute.repository_owner_id": "assertion.repository_owner_id",
}

STATE_READ = ("storage.objects.get", "storage.objects.list")
STATE_WRITE = (*STATE_READ, "storage.objects.create", "storage.objects.delete")
KEY_USE = {
    ReviewPart.PREVIEW: "roles/cloudkms.cryptoKeyDecrypter",
    ReviewPart.DRIFT: "roles/cloudkms.cryptoKeyDecrypter",
    ReviewPart.DEPLOY: "roles/cloudkms.cryptoKeyEncrypterDecrypter",
}

CONTROL = Condition("control-buckets", 'resource.name.extract("/buckets/everspot-{cluster}-store-control-") != ""')
"""The control buckets of clusters, which a preview asks for running jobs."""


@dataclass(frozen=True)
class IdentityPool:
    """The pool of a repository's identities. `pool`: its name, projects/NUMBER/…; `provider`: that of its provider."""

    pool: pulumi.Output[str]
    provider: pulumi.Output[str]
    repository: RepositoryArgs


def provider_condition(repository: RepositoryArgs) -> str:
    """Return the provider's condition: jobs of one repository, and with the environment that may write only those of
    the branch that changes are merged into. One issuer serves all of GitHub."""
    writes, merged = f'assertion.sub.endsWith(":{deployed_by(repository)}")', merged_ref(repository)
    branch = f'!({writes} && assertion.ref != "{merged}")'
    if "id" in repository and "owner_id" in repository:
        own, owner = repository["id"], repository["owner_id"]
        return f'assertion.repository_id == "{own}" && assertion.repository_owner_id == "{owner}" && {branch}'
    return f'assertion.repository == "{repository["name"]}" && {branch}'


def add_identity_pool(parent: pulumi.Resource, name: str, repository: RepositoryArgs) -> IdentityPool:
    """Declare the pool of identities, and GitHub as its provider."""
    child = pulumi.ResourceOptions(parent=parent)
    pool = iam.WorkloadIdentityPool(
        f"{name}-pool",
        workload_identity_pool_id=POOL,
        display_name="Everspot: reviews",
        description=f"Jobs of {repository['name']}",
        opts=child,
    )
    provider = iam.WorkloadIdentityPoolProvider(
        f"{name}-github",
        workload_identity_pool_id=pool.workload_identity_pool_id,
        workload_identity_pool_provider_id=PROVIDER,
        display_name="GitHub",
        attribute_mapping=MAPPING,
        attribute_condition=provider_condition(repository),
        oidc={"issuer_uri": ISSUER},
        opts=child,
    )
    return IdentityPool(pool.name, provider.name, repository)


def grant_impersonation(
    parent: pulumi.Resource,
    name: str,
    account: "serviceaccount.Account",
    part: ReviewPart,
    identity_pool: IdentityPool | None,
    runners: Sequence[str],
) -> None:
    """Let a part's jobs, and the runners' own accounts, become its service account. Each subject is named in full."""
    child = pulumi.ResourceOptions(parent=parent)
    if identity_pool is not None:
        for index, subject in enumerate(subjects(identity_pool.repository, part)):
            member = pulumi.Output.concat("principal://iam.googleapis.com/", identity_pool.pool, "/subject/", subject)
            serviceaccount.IAMMember(
                f"{name}-jobs-{index}", service_account_id=account.name, role=USER, member=member, opts=child
            )
    for suffix, former_suffix, email in name_by_target("runner", runners):
        serviceaccount.IAMMember(
            f"{name}-{suffix}",
            service_account_id=account.name,
            role=IMPERSONATOR,
            member=f"serviceAccount:{email}",
            opts=pulumi.ResourceOptions.merge(child, former_name(f"{name}-{former_suffix}")),
        )


def grant(
    parent: pulumi.Resource,
    name: str,
    account: "serviceaccount.Account",
    part: ReviewPart,
    *,
    project: pulumi.Output[str],
    bucket: pulumi.Output[str],
    key: pulumi.Output[str],
) -> None:
    """Give a part's account its permissions. `bucket`, `key`: the state's."""
    may = Granting(parent, name, f"bootstrap-{part.value}", account.email, account.unique_id)
    objects = {permission for permission in permissions(part) if permission.startswith("storage.objects.")}
    buckets = {permission for permission in permissions(part) if permission.startswith("storage.")} - objects
    remaining = permissions(part) - objects - buckets
    may.on_project("does", project, may.role("doer", sorted(remaining), f"What a job that does {part.value} asks for"))
    reader = may.role("reader", STATE_READ, "Read the state and control buckets")
    may.on_project("control-read", project, reader, CONTROL)
    if buckets:
        purpose = "Look at buckets" if part is ReviewPart.DRIFT else "Make buckets and what lies in them"
        bucket_role = may.role("keeper", sorted(buckets | (objects if part is ReviewPart.DEPLOY else set())), purpose)
        may.on_project("buckets", project, bucket_role, bucket.apply(except_state_bucket))
        if part is ReviewPart.DRIFT:
            may.on_bucket("state-seen", bucket, bucket_role)
    state = may.role("writer", STATE_WRITE, "Write the state") if part is ReviewPart.DEPLOY else reader
    may.on_bucket("state", bucket, state)
    kms.CryptoKeyIAMMember(
        f"{name}-key",
        crypto_key_id=key,
        role=KEY_USE[part],
        member=pulumi.Output.concat("serviceAccount:", account.email),
        opts=pulumi.ResourceOptions(parent=parent),
    )


def permissions(part: ReviewPart) -> frozenset[str]:
    """Return the permissions that a part's jobs need, on the project."""
    if part is ReviewPart.PREVIEW:
        return deployers.PREVIEW
    if part is ReviewPart.DRIFT:
        return deployers.PREVIEW | deployers.DRIFT | deployers.BOOTSTRAP
    unseen = {
        permission for names in deployers.UNSEEN for permission in names.split(", ") if not permission.endswith("*")
    }
    return deployers.PREVIEW | deployers.DEPLOY | deployers.ACCOUNT | unseen


def except_state_bucket(state: str) -> Condition:
    """Return the IAM condition that excludes the state's bucket and its objects, and nothing else."""
    own = f"projects/_/buckets/{state}"
    return Condition("not-the-state", f'resource.name != "{own}" && !resource.name.startsWith("{own}/")')
