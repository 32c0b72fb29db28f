"""Stands in for IAM's predefined roles that a training cluster is granted or refused.

Their permissions are limited to products that the local cloud has.

Source: "IAM roles and permissions index". A role that is not here is refused when it is granted, which is the local
cloud's own limit and is said so.
"""

from everspot_local.gcp.iam.permissions import KNOWN

_PROJECT = ("resourcemanager.projects.get", "resourcemanager.projects.list")
_READS = ("get", "list", "getFromFamily", "listReferrers", "getEffectiveFirewalls", "getSerialPortOutput")
_UPLOADS = ("abort", "create", "list", "listParts")
_OBJECT_USER = (
    *_PROJECT,
    *(f"storage.objects.{verb}" for verb in ("create", "delete", "get", "list", "move", "restore", "update")),
    *(f"storage.multipartUploads.{verb}" for verb in _UPLOADS),
    *(f"storage.folders.{verb}" for verb in ("create", "delete", "get", "list", "rename")),
    *(f"storage.managedFolders.{verb}" for verb in ("create", "delete", "get", "list")),
    "orgpolicy.policy.get",
    "monitoring.timeSeries.create",
)


def _all_permissions(*kinds: str) -> tuple[str, ...]:
    return tuple(sorted(name for name in KNOWN if name.startswith(tuple(f"{kind}." for kind in kinds))))


def _reading() -> tuple[str, ...]:
    return tuple(sorted(name for name in KNOWN if name.rpartition(".")[2] in _READS and not _data(name)))


def _data(name: str) -> bool:
    """Return whether a permission reads data, which basic roles do not allow by a project's policy alone, nor for
    secrets at all ("Basic roles")."""
    return name.startswith(("storage.objects.", "secretmanager.versions.access"))


def _editing() -> tuple[str, ...]:
    owners = ("setIamPolicy", "iam.roles.", "osAdminLogin")
    return tuple(sorted(name for name in KNOWN if not any(o in name for o in owners) and not _data(name)))


PREDEFINED: dict[str, frozenset[str]] = {
    name: frozenset(permissions)
    for name, permissions in {
        "roles/owner": KNOWN,
        "roles/editor": _editing(),
        "roles/viewer": _reading(),
        "roles/billing.costsManager": (
            "billing.accounts.get", "billing.accounts.list", *_all_permissions("billing.budgets"),
        ),
        "roles/billing.viewer": (
            "billing.accounts.get", "billing.accounts.getIamPolicy", "billing.accounts.list", "billing.budgets.get",
            "billing.budgets.list",
        ),
        "roles/cloudkms.cryptoKeyDecrypter": (
            "cloudkms.cryptoKeyVersions.useToDecrypt",
            "cloudkms.locations.get", "cloudkms.locations.list", "resourcemanager.projects.get",
        ),
        "roles/cloudkms.cryptoKeyEncrypterDecrypter": (
            "cloudkms.cryptoKeyVersions.useToDecrypt", "cloudkms.cryptoKeyVersions.useToEncrypt",
            "cloudkms.locations.get", "cloudkms.locations.list", "resourcemanager.projects.get",
        ),
        "roles/compute.admin": (*_PROJECT, *_all_permissions("compute")),
        "roles/compute.instanceAdmin.v1": (
            *_PROJECT,
            *_all_permissions(
                "compute.instances", "compute.disks", "compute.instanceTemplates", "compute.instanceGroups",
                "compute.instanceGroupManagers", "compute.zoneOperations", "compute.regionOperations",
            ),
            *(p for p in _reading() if p.startswith("compute.")), "compute.networks.use", "compute.subnetworks.use",
            "compute.subnetworks.useExternalIp", "compute.images.useReadOnly",
        ),
        "roles/compute.networkUser": (
            "compute.networks.use", "compute.networks.get", "compute.networks.list", "compute.subnetworks.use",
            "compute.subnetworks.useExternalIp", "compute.subnetworks.get", "compute.subnetworks.list", *_PROJECT,
        ),
        "roles/compute.osAdminLogin": (
            "compute.instances.get", "compute.instances.list", "compute.instances.osAdminLogin",
            "compute.instances.osLogin", "compute.projects.get", *_PROJECT,
        ),
        "roles/compute.osLogin": (
            "compute.instances.get", "compute.instances.list", "compute.instances.osLogin", "compute.projects.get",
            *_PROJECT,
        ),
        "roles/compute.viewer": (*_PROJECT, *(p for p in _reading() if p.startswith("compute."))),
        "roles/iam.serviceAccountTokenCreator": (
            "iam.serviceAccounts.get", "iam.serviceAccounts.list", "iam.serviceAccounts.getAccessToken",
            "iam.serviceAccounts.getOpenIdToken", "iam.serviceAccounts.implicitDelegation",
            "iam.serviceAccounts.signBlob", "iam.serviceAccounts.signJwt", *_PROJECT,
        ),
        "roles/iam.serviceAccountUser": (
            "iam.serviceAccounts.actAs", "iam.serviceAccounts.get", "iam.serviceAccounts.list", *_PROJECT,
        ),
        "roles/iam.workloadIdentityUser": (
            "iam.serviceAccounts.get", "iam.serviceAccounts.list", "iam.serviceAccounts.getAccessToken",
            "iam.serviceAccounts.getOpenIdToken",
        ),
        "roles/iap.tunnelResourceAccessor": ("iap.tunnelInstances.accessViaIAP",),
        "roles/logging.bucketWriter": ("logging.logEntries.create",),
        "roles/logging.logWriter": ("logging.logEntries.create", "logging.logEntries.route"),
        "roles/logging.viewer": (*_PROJECT, "logging.logEntries.list", "logging.sinks.get", "logging.sinks.list"),
        "roles/monitoring.metricWriter": (
            "monitoring.metricDescriptors.create", "monitoring.metricDescriptors.get",
            "monitoring.metricDescriptors.list", "monitoring.monitoredResourceDescriptors.get",
            "monitoring.monitoredResourceDescriptors.list", "monitoring.timeSeries.create",
        ),
        "roles/pubsub.admin": (*_PROJECT, *_all_permissions("pubsub")),
        "roles/pubsub.editor": (*_PROJECT, *(p for p in _all_permissions("pubsub") if "IamPolicy" not in p)),
        "roles/pubsub.publisher": ("pubsub.topics.publish",),
        "roles/pubsub.subscriber": (
            "pubsub.snapshots.seek", "pubsub.subscriptions.consume", "pubsub.topics.attachSubscription",
        ),
        "roles/pubsub.viewer": (
            "pubsub.snapshots.get", "pubsub.snapshots.list", "pubsub.subscriptions.get", "pubsub.subscriptions.list",
            "pubsub.topics.get", "pubsub.topics.list", "resourcemanager.projects.get",
        ),
        "roles/secretmanager.secretAccessor": (*_PROJECT, "secretmanager.versions.access"),
        "roles/secretmanager.viewer": (
            *_PROJECT, "secretmanager.secrets.get", "secretmanager.secrets.getIamPolicy",
            "secretmanager.secrets.list", "secretmanager.versions.get", "secretmanager.versions.list",
        ),
        "roles/storage.admin": (*_PROJECT, *_all_permissions("storage")),
        "roles/storage.bucketViewer": ("storage.buckets.get", "storage.buckets.list"),
        "roles/storage.legacyBucketOwner": (
            "storage.buckets.get", "storage.buckets.getIamPolicy", "storage.buckets.setIamPolicy",
            "storage.buckets.update", "storage.objects.create", "storage.objects.delete", "storage.objects.list",
            *(f"storage.multipartUploads.{verb}" for verb in _UPLOADS),
        ),
        "roles/storage.legacyBucketReader": (
            "storage.buckets.get", "storage.objects.list", "storage.multipartUploads.list",
        ),
        "roles/storage.legacyBucketWriter": (
            "storage.buckets.get", "storage.objects.create", "storage.objects.delete", "storage.objects.list",
            *(f"storage.multipartUploads.{verb}" for verb in _UPLOADS),
        ),
        "roles/storage.legacyObjectOwner": (
            "storage.objects.get", "storage.objects.getIamPolicy", "storage.objects.setIamPolicy",
            "storage.objects.update",
        ),
        "roles/storage.legacyObjectReader": ("storage.objects.get",),
        "roles/storage.objectAdmin": (
            *_OBJECT_USER, "storage.objects.getIamPolicy", "storage.objects.setIamPolicy",
            "storage.objects.overrideUnlockedRetention", "storage.objects.setRetention",
        ),
        "roles/storage.objectCreator": (
            *_PROJECT, "orgpolicy.policy.get", "storage.folders.create", "storage.managedFolders.create",
            "storage.multipartUploads.abort", "storage.multipartUploads.create", "storage.multipartUploads.listParts",
            "storage.objects.create",
        ),
        "roles/storage.objectUser": _OBJECT_USER,
        "roles/storage.objectViewer": (
            *_PROJECT, "storage.folders.get", "storage.folders.list", "storage.managedFolders.get",
            "storage.managedFolders.list", "storage.objects.get", "storage.objects.list",
        ),
    }.items()
}  # fmt: skip
"""Permissions by the name of the role."""
BASIC = ("roles/owner", "roles/editor", "roles/viewer")
