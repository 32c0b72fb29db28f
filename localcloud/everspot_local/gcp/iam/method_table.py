"""The permissions that each method needs, and the resource that they are checked on, where the method alone decides.

A line is a kind of methods: its verbs, each with the verbs of the permissions. What depends on the body (launches,
objects that are there already, accounts that instances run as) is in `needs`. Sources: the section "IAM Permissions" of
each method's page in the Compute Engine API reference; "IAM permissions for JSON methods" and "IAM permissions for XML
requests" of Cloud Storage; "Access control with IAM" of Pub/Sub, Logging, Secret Manager, Cloud KMS and Monitoring;
"Method: projects.roles.*" and "projects.serviceAccounts.*" of IAM.
"""

_READ = "get=get list=list"
_ALL = f"{_READ} insert=create delete=delete patch=update,get"
_POLICY = "getIamPolicy=getIamPolicy setIamPolicy=setIamPolicy testIamPermissions="
_MANAGERS = (
    f"{_READ} aggregatedList=list insert=create delete=delete patch=update,get resize=update deleteInstances=update"
    " recreateInstances=update abandonInstances=update applyUpdatesToInstances=update createInstances=update"
    " setInstanceTemplate=update setAutoHealingPolicies=update listErrors=get listManagedInstances=get"
)
_KINDS = {
    # methods: (kind of the permissions, verbs)
    "compute.acceleratorTypes": ("compute.acceleratorTypes", f"{_READ} aggregatedList=list"),
    "compute.advice": ("compute.advice", "capacity=capacity capacityHistory=capacityHistory"),
    "compute.disks": ("compute.disks", f"{_READ} aggregatedList=list delete=delete setLabels=setLabels"),
    "compute.diskTypes": ("compute.diskTypes", f"{_READ} aggregatedList=list"),
    "compute.firewalls": ("compute.firewalls", f"{_ALL} update=update"),
    "compute.globalOperations": ("compute.globalOperations", f"{_READ} aggregatedList=list delete=delete wait=get"),
    "compute.healthChecks": ("compute.healthChecks", f"{_ALL} update=update aggregatedList=list"),
    "compute.images": (
        "compute.images", f"{_READ} insert=create getFromFamily=getFromFamily delete=delete deprecate=deprecate",
    ),
    "compute.instanceGroupManagers": ("compute.instanceGroupManagers", _MANAGERS),
    "compute.instanceGroups": ("compute.instanceGroups", f"{_READ} aggregatedList=list listInstances=list"),
    "compute.instanceTemplates": (
        "compute.instanceTemplates", f"{_READ} aggregatedList=list insert=create delete=delete",
    ),
    "compute.instances": (
        "compute.instances",
        f"{_READ} aggregatedList=list delete=delete setLabels=setLabels setMetadata=setMetadata setTags=setTags"
        " setScheduling=setScheduling setDeletionProtection=setDeletionProtection start=start stop=stop reset=reset"
        " suspend=suspend resume=resume simulateMaintenanceEvent=simulateMaintenanceEvent"
        " getSerialPortOutput=getSerialPortOutput getGuestAttributes=getGuestAttributes listReferrers=listReferrers"
        " setServiceAccount=setServiceAccount setMachineType=setMachineType"
        " getShieldedInstanceIdentity=getShieldedInstanceIdentity",
    ),
    "compute.machineTypes": ("compute.machineTypes", f"{_READ} aggregatedList=list"),
    "compute.networks": ("compute.networks", f"{_ALL} getEffectiveFirewalls=getEffectiveFirewalls"),
    "compute.projects": ("compute.projects", "get=get"),
    "compute.regionHealthChecks": ("compute.regionHealthChecks", f"{_ALL} update=update"),
    "compute.regionInstanceGroupManagers": ("compute.instanceGroupManagers", _MANAGERS),
    "compute.regionInstanceGroups": ("compute.instanceGroups", f"{_READ} listInstances=get"),
    "compute.regionInstanceTemplates": ("compute.instanceTemplates", f"{_READ} insert=create delete=delete"),
    "compute.regionOperations": ("compute.regionOperations", f"{_READ} delete=delete wait=get"),
    "compute.regions": ("compute.regions", _READ),
    "compute.reservations": ("compute.reservations", f"{_READ} aggregatedList=list"),
    "compute.routers": (
        "compute.routers",
        f"{_ALL} update=update aggregatedList=list getRouterStatus=get getNatMappingInfo=get getNatIpInfo=get",
    ),
    "compute.routes": ("compute.routes", f"{_READ} insert=create delete=delete"),
    "compute.subnetworks": (
        "compute.subnetworks",
        f"{_ALL} aggregatedList=list expandIpCidrRange=expandIpCidrRange"
        " setPrivateIpGoogleAccess=setPrivateIpGoogleAccess getIamPolicy=getIamPolicy setIamPolicy=setIamPolicy",
    ),
    "compute.zoneOperations": ("compute.zoneOperations", f"{_READ} delete=delete wait=get"),
    "compute.zones": ("compute.zones", _READ),
    "cloudkms.projects.locations.keyRings": ("cloudkms.keyRings", f"{_READ} create=create {_POLICY}"),
    "cloudkms.projects.locations.keyRings.cryptoKeys": (
        "cloudkms.cryptoKeys", f"{_READ} create=create patch=update,get {_POLICY}",
    ),
    "cloudkms.projects.locations.keyRings.cryptoKeys.cryptoKeyVersions": (
        "cloudkms.cryptoKeyVersions", f"{_READ} destroy=destroy",
    ),
    "billingbudgets.billingAccounts.budgets": (
        "billing.budgets", f"{_READ} create=create delete=delete patch=update",
    ),
    "cloudbilling.billingAccounts": ("billing.accounts", _POLICY),
    "cloudbilling.services.skus": ("billing.accounts", "list="),
    "cloudbilling.projects": ("resourcemanager.projects", "getBillingInfo=get"),
    "cloudresourcemanager.projects": ("resourcemanager.projects", f"get=get {_POLICY}"),
    "iam.projects.roles": (
        "iam.roles", f"{_READ} create=create delete=delete patch=update,get undelete=undelete",
    ),
    "iam.projects.locations.workloadIdentityPools": (
        "iam.workloadIdentityPools",
        f"{_READ} create=create delete=delete patch=update undelete=undelete listAttestationRules=get",
    ),
    "iam.projects.locations.workloadIdentityPools.operations": ("iam.workloadIdentityPools", "get=get"),
    "iam.projects.locations.workloadIdentityPools.providers": (
        "iam.workloadIdentityPoolProviders", f"{_READ} create=create delete=delete patch=update undelete=undelete",
    ),
    "iam.projects.locations.workloadIdentityPools.providers.operations": (
        "iam.workloadIdentityPoolProviders", "get=get",
    ),
    "iam.projects.serviceAccounts": (
        "iam.serviceAccounts",
        f"{_READ} create=create delete=delete patch=update,get disable=disable enable=enable undelete=undelete"
        f" {_POLICY}",
    ),
    "iam.roles": ("iam.roles", "get="),
    "iamcredentials.projects.serviceAccounts": ("iam.serviceAccounts", "generateAccessToken=getAccessToken"),
    "logging.projects.sinks": (
        "logging.sinks", f"{_READ} create=create delete=delete patch=update,get update=update",
    ),
    "monitoring.projects.alertPolicies": (
        "monitoring.alertPolicies", f"{_READ} create=create delete=delete patch=update,get",
    ),
    "monitoring.projects.dashboards": (
        "monitoring.dashboards", f"{_READ} create=create delete=delete patch=update,get",
    ),
    "monitoring.projects.notificationChannels": (
        "monitoring.notificationChannels", f"{_READ} create=create delete=delete patch=update,get",
    ),
    "monitoring.projects.timeSeries": ("monitoring.timeSeries", "create=create list=list"),
    "pubsub.projects.subscriptions": (
        "pubsub.subscriptions",
        f"{_READ} create=create delete=delete patch=update,get pull=consume acknowledge=consume"
        f" modifyAckDeadline=consume {_POLICY}",
    ),
    "pubsub.projects.topics": (
        "pubsub.topics", f"{_READ} create=create delete=delete patch=update,get publish=publish {_POLICY}",
    ),
    "pubsub.projects.topics.subscriptions": ("pubsub.topics", "list=get"),
    "secretmanager.projects.secrets": (
        "secretmanager.secrets", f"{_READ} create=create delete=delete patch=update,get {_POLICY}",
    ),
    "secretmanager.projects.secrets.versions": (
        "secretmanager.versions", f"{_READ} access=access destroy=destroy disable=disable enable=enable",
    ),
    "serviceusage.services": (
        "serviceusage.services", "get=get list=list batchGet=get enable=enable batchEnable=enable",
    ),
    "storage.anywhereCaches": ("storage.anywhereCaches", "list=list"),
    "storage.buckets": (
        "storage.buckets",
        f"{_READ} insert=create delete=delete patch=update update=update lockRetentionPolicy=update {_POLICY}",
    ),
    "storage.objects": (
        "storage.objects", f"{_READ} insert=create delete=delete patch=update,get compose=create copy=create"
        " rewrite=create restore=restore",
    ),
    "sts": ("sts", "token="),
    "storage.projects.serviceAccount": ("resourcemanager.projects", "get=get"),
}  # fmt: skip
_SINGLE = {
    "secretmanager.projects.secrets.addVersion": ("secretmanager.versions.add",),
    "storage.multipartUploads.abort": ("storage.multipartUploads.abort",),
    "storage.multipartUploads.create": ("storage.multipartUploads.create", "storage.objects.create"),
}
PERMISSIONS: dict[str, tuple[str, ...]] = {
    f"{methods}.{verb}": tuple(f"{kind}.{name}" for name in names.split(",") if name)
    for methods, (kind, verbs) in _KINDS.items()
    for verb, _, names in (pair.partition("=") for pair in verbs.split())
} | _SINGLE
"""Permissions by method id; none for what everybody may call."""
