"""Permissions that `pulumi preview`, `up`, `refresh` and `destroy` need on Google Cloud, as data.

`docs/reference/security.md` prints these tables. The tests with the real engine check every call against them, and that
every permission is needed by some call. Some show in no call, because only some settings or changes need them; each
of these says for what.
"""

from collections.abc import Mapping

from everspot_clouds import deployer_tables


def _permissions(**services: str) -> frozenset[str]:
    return frozenset(f"{service}.{verb}" for service, verbs in services.items() for verb in verbs.split())


PREVIEW = _permissions(
    compute="images.get images.getFromFamily zones.list",
    resourcemanager="projects.get",
)
"""Calls of a preview of a cluster. All of them only read."""

DEPLOY = _permissions(
    compute="""disks.create disks.setLabels firewalls.create firewalls.delete firewalls.get globalOperations.get
        healthChecks.create healthChecks.delete healthChecks.get images.useReadOnly instanceGroupManagers.create
        instanceGroupManagers.delete instanceGroupManagers.get instanceGroupManagers.update instanceTemplates.create
        instanceTemplates.delete instanceTemplates.get instanceTemplates.useReadOnly instances.create
        instances.setLabels instances.setMetadata instances.setServiceAccount instances.setTags networks.create
        networks.delete networks.get networks.updatePolicy regionOperations.get routers.create routers.delete
        routers.get routers.update subnetworks.create subnetworks.delete subnetworks.get subnetworks.update
        subnetworks.use""",
    iam="""roles.create roles.delete roles.get serviceAccounts.actAs serviceAccounts.create serviceAccounts.delete
        serviceAccounts.get serviceAccounts.getIamPolicy serviceAccounts.setIamPolicy
        workloadIdentityPoolProviders.create workloadIdentityPoolProviders.delete workloadIdentityPoolProviders.get
        workloadIdentityPools.create workloadIdentityPools.delete workloadIdentityPools.get""",
    logging="sinks.create sinks.delete sinks.get",
    monitoring="""alertPolicies.create alertPolicies.delete alertPolicies.get dashboards.create dashboards.delete
        dashboards.get""",
    pubsub="""subscriptions.create subscriptions.delete subscriptions.get subscriptions.getIamPolicy
        subscriptions.setIamPolicy topics.attachSubscription topics.create topics.delete topics.get topics.getIamPolicy
        topics.setIamPolicy""",
    resourcemanager="projects.getIamPolicy projects.setIamPolicy",
    storage="""anywhereCaches.list buckets.create buckets.delete buckets.get buckets.getIamPolicy buckets.setIamPolicy
        buckets.update objects.create objects.delete objects.get objects.list""",
)
"""Further calls of `up`, `refresh` and `destroy` of a cluster."""

DRIFT = frozenset(
    permission for permission in DEPLOY if permission.rpartition(".")[2] in ("get", "getIamPolicy", "list")
) - _permissions(
    compute="globalOperations.get regionOperations.get",
) | _permissions(
    compute="disks.list firewalls.list instanceGroupManagers.list instanceTemplates.list instances.list routers.list",
    pubsub="subscriptions.list topics.list",
    storage="buckets.list",
)
"""Further calls of a refresh that changes nothing, and of the checks for resources that were added by hand or belong to
no stack: the reading calls of `DEPLOY`, without the ones that ask how far a change is, and the lists of these checks
alone."""

BOOTSTRAP = _permissions(
    cloudkms="cryptoKeys.get cryptoKeys.getIamPolicy keyRings.get",
    serviceusage="services.list",
)
"""Further calls of a refresh of the bootstrap stack, and of the account's. Budgets are read by a role at the billing
account, which the project cannot give."""

ACCOUNT = _permissions(serviceusage="services.list")
"""Further calls of `up` of the account stack. It switches nothing off."""

UNSEEN: Mapping[str, str] = {
    "serviceusage.services.enable": "in the account stack, where a service is off: Service Usage, Access control",
    "storage.objects.list, storage.objects.get": "of a preview too, on the control bucket, for `guardJobs`",
    "compute.firewalls.update, compute.healthChecks.update, compute.networks.update, iam.roles.update, "
    "iam.serviceAccounts.update, logging.sinks.update, monitoring.alertPolicies.update, monitoring.dashboards.update, "
    "pubsub.subscriptions.update, pubsub.topics.update": "where tags, settings or a later release change what is "
    "there: IAM permissions reference, by these names",
    "iam.workloadIdentityPools.update, iam.workloadIdentityPoolProviders.update": "where a peer on AWS changes: IAM "
    "permissions reference, by these names",
    "iam.roles.undelete": "where a custom role of the same id was deleted in the last 7 days: the provider takes it "
    "back (resource_google_project_iam_custom_role.go)",
    "cloudkms.cryptoKeys.getIamPolicy, cloudkms.cryptoKeys.setIamPolicy": "on the keys, with `kmsKey` and in the "
    "account stack with `volumeKmsKeys`: Cloud KMS, Permissions and roles",
    "secretmanager.secrets.getIamPolicy, secretmanager.secrets.setIamPolicy": "on the secrets, with `secrets` and "
    "`notifications.webhookSecret`: Secret Manager, Access control",
    "artifactregistry.repositories.getIamPolicy, artifactregistry.repositories.setIamPolicy": "on the repositories, "
    "with `imageRepositories`",
    "storage.buckets.getIamPolicy, storage.buckets.setIamPolicy": "on the buckets, with `readBuckets`",
    "pubsub.topics.getIamPolicy, pubsub.topics.setIamPolicy": "on the topic, with `notifications.topic`",
    "compute.networks.updatePolicy, compute.firewalls.*, compute.subnetworks.use": "in the host project of a Shared "
    "VPC; with `firewall: false` the last alone: VPC, Provision a Shared VPC",
}
"""Permissions that no call in the tests shows, each with what needs it."""


def table() -> str:
    """Return the two tables of `docs/reference/security.md`, in Markdown."""
    return deployer_tables.table(PREVIEW, DEPLOY, ACCOUNT, UNSEEN, after=".", cell=_cell)


def _cell(service: str, permissions: frozenset[str]) -> str:
    """Return the verbs of a service, those of one kind together: `topics.create`, `get`."""
    kinds: dict[str, list[str]] = {}
    for permission in sorted(permissions):
        own, kind, verb = permission.split(".")
        if own == service:
            kinds.setdefault(kind, []).append(verb)
    return ", ".join(
        f"{kind}.{{{','.join(verbs)}}}" if verbs[1:] else f"{kind}.{verbs[0]}" for kind, verbs in kinds.items()
    )
