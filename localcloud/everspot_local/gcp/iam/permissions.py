"""Stands in for IAM's list of permissions: those of the products that the local cloud has, and of
Artifact Registry's repositories, no others.

A custom role with one that is not here is refused, as IAM refuses one that does not exist. Source: "IAM permissions
reference" and the permissions of `roles/owner`; a test finds here every permission that a call is held to.
"""

_VERBS = {
    "artifactregistry.repositories": "create delete get getIamPolicy list setIamPolicy update",
    "billing.accounts": "get getIamPolicy list setIamPolicy",
    "billing.budgets": "create delete get list update",
    "cloudkms.cryptoKeyVersions": "create destroy get list restore update useToDecrypt useToEncrypt",
    "cloudkms.cryptoKeys": "create get getIamPolicy list setIamPolicy update",
    "cloudkms.keyRings": "create get getIamPolicy list setIamPolicy",
    "cloudkms.locations": "get list",
    "compute.acceleratorTypes": "get list",
    "compute.advice": "calendarMode capacity capacityHistory",
    "compute.diskTypes": "get list",
    "compute.disks": "addResourcePolicies create createSnapshot delete get getIamPolicy list removeResourcePolicies"
    " resize setIamPolicy setLabels update use useReadOnly",
    "compute.firewalls": "create delete get list update",
    "compute.globalOperations": "delete get list",
    "compute.healthChecks": "create delete get list update use useReadOnly",
    "compute.images": "create delete deprecate get getFromFamily getIamPolicy list setIamPolicy setLabels update"
    " useReadOnly",
    "compute.instanceGroupManagers": "create delete get list update use",
    "compute.instanceGroups": "create delete get list update use",
    "compute.instanceTemplates": "create delete get getIamPolicy list setIamPolicy useReadOnly",
    "compute.instances": "addAccessConfig addNetworkInterface addResourcePolicies attachDisk create delete"
    " deleteAccessConfig deleteNetworkInterface detachDisk get getEffectiveFirewalls getGuestAttributes getIamPolicy"
    " getScreenshot getSerialPortOutput getShieldedInstanceIdentity list listReferrers osAdminLogin osLogin"
    " pscInterfaceCreate removeResourcePolicies reset resume sendDiagnosticInterrupt setDeletionProtection"
    " setDiskAutoDelete setIamPolicy setLabels setMachineResources setMachineType setMetadata setMinCpuPlatform"
    " setName setScheduling setServiceAccount setShieldedInstanceIntegrityPolicy setTags simulateMaintenanceEvent"
    " start stop suspend update updateAccessConfig updateNetworkInterface updateShieldedInstanceConfig use"
    " useReadOnly",
    "compute.machineTypes": "get list",
    "compute.networks": "access addPeering create delete get getEffectiveFirewalls list mirror removePeering"
    " switchToCustomMode update updatePeering updatePolicy use useExternalIp",
    "compute.projects": "get setCommonInstanceMetadata",
    "compute.regionHealthChecks": "create delete get list update use useReadOnly",
    "compute.regionOperations": "delete get list",
    "compute.regions": "get list",
    "compute.reservations": "create delete get list resize update",
    "compute.routers": "create delete get list update use",
    "compute.routes": "create delete get list",
    "compute.subnetworks": "create delete expandIpCidrRange get getIamPolicy list mirror setIamPolicy"
    " setPrivateIpGoogleAccess update use useExternalIp",
    "compute.zoneOperations": "delete get list",
    "compute.zones": "get list",
    "iam.roles": "create delete get list undelete update",
    "iam.serviceAccountKeys": "create delete disable enable get list",
    "iam.serviceAccounts": "actAs create delete disable enable get getAccessToken getIamPolicy getOpenIdToken"
    " implicitDelegation list setIamPolicy signBlob signJwt undelete update",
    "iam.workloadIdentityPoolProviders": "create delete get list undelete update",
    "iam.workloadIdentityPools": "create delete get list undelete update",
    "iap.tunnelInstances": "accessViaIAP getIamPolicy setIamPolicy",
    "logging.logEntries": "create list route",
    "logging.sinks": "create delete get list update",
    "monitoring.alertPolicies": "create delete get list update",
    "monitoring.dashboards": "create delete get list update",
    "monitoring.metricDescriptors": "create delete get list",
    "monitoring.monitoredResourceDescriptors": "get list",
    "monitoring.notificationChannels": "create delete get list update",
    "monitoring.timeSeries": "create list",
    "orgpolicy.policy": "get",
    "pubsub.snapshots": "create delete get list seek update",
    "pubsub.subscriptions": "consume create delete get getIamPolicy list setIamPolicy update",
    "pubsub.topics": "attachSubscription create delete detachSubscription get getIamPolicy list publish setIamPolicy"
    " update",
    "resourcemanager.projects": "get getIamPolicy list setIamPolicy update",
    "secretmanager.secrets": "create delete get getIamPolicy list setIamPolicy update",
    "secretmanager.versions": "access add destroy disable enable get list",
    "serviceusage.quotas": "get",
    "serviceusage.services": "disable enable get list use",
    "storage.anywhereCaches": "create disable get list pause resume update",
    "storage.buckets": "create delete enableObjectRetention get getIamPolicy list restore setIamPolicy update",
    "storage.folders": "create delete get list rename",
    "storage.managedFolders": "create delete get list",
    "storage.multipartUploads": "abort create list listParts",
    "storage.objects": "create delete get getIamPolicy list move overrideUnlockedRetention restore setIamPolicy"
    " setRetention update",
}
KNOWN = frozenset(f"{kind}.{verb}" for kind, verbs in _VERBS.items() for verb in verbs.split())
"""Every permission there is."""
NOT_IN_PROJECT_ROLES = frozenset({"resourcemanager.projects.list"})
"""Permissions that a custom role of a project cannot have ("Custom roles": projects.list is for organizations)."""
