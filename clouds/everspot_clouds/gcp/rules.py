"""Facts about Google Cloud, and the names of our labels and events there, as values.

Each figure has its source. Nothing here needs a client, so a Pulumi program may import this module. "Spot VMs" is the
page of that name in the Compute Engine documentation.
"""

from datetime import timedelta

from everspot_core.costs.billing import BillingRules
from everspot_core.jobs.job_rules import CloudRules

from everspot_clouds.gcp.boot_rules import MANIFEST_KEY as MANIFEST_KEY
from everspot_clouds.gcp.boot_rules import TRUSTED as TRUSTED

CLUSTER_LABEL = "everspot-cluster"
"""Label of a cluster's resources. The scheduler and the CLI find them by it."""

STORE_LABEL = "everspot-store"
"""Label of a cluster's resources with the mark of its store, which tells them from those of another cluster of the same
name in the project. The buckets of the store have none: the manifest names them."""

ROLE_LABEL = "everspot-role"
"""Label of instances: agent or scheduler."""

LAUNCH_LABEL = "everspot-launch"
"""Label of launched instances: the token of the launch intent."""

IMAGE_LABEL = "everspot-image"
"""Label of instances: their image's name. The API does not say from which image an instance's boot disk was made."""

DOOR_TAG = "everspot-door"
"""Network tag of instances that people may enter through Identity-Aware Proxy. The firewall rule selects them by it."""

HEALTH_PORT = 9495
"""The port at which agents answer the health checks of their managed instance group."""

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
"""The OAuth scope of every call. IAM decides what the call may do."""

NOTICES = (timedelta(0), timedelta(seconds=120))
"""The allowed values of `scheduling.preemptionNoticeDuration`: none, or 120 s (Compute Engine release notes of
2026-09-30)."""

STOP_SPOT, STOP_STANDARD = timedelta(seconds=20), timedelta(seconds=80)
"""Real time that an agent takes at most to stop its job once its machine is being switched off: within the 30 s of a
Spot VM and the 120 s of a standard one."""

PREEMPTED = "compute.instances.preempted"
"""The operation, and the audit log's method, of a preemption: by the user `system`, with the numeric id of the VM."""

BARE_METAL_PREEMPTED = "compute.instances.baremetalCaretakerPreempted"
"""The same of a bare metal machine."""

REPAIRED = "compute.instances.repair.recreateInstance"
"""The operation in which a group recreates an instance."""

HALTED = (
    "compute.instances.guestTerminate",
    "compute.instances.hostError",
    "compute.instances.terminateOnHostMaintenance",
    "compute.instances.instanceManagerHaltForRestart",
    BARE_METAL_PREEMPTED,
    "compute.instances.stoppedDueToPdDoubleServe",
    "compute.instances.kmsKeyError",
    "compute.instances.shredmillKeyError",
    "compute.instances.invalidVmImage",
    "compute.instances.scratchDiskCreationFailed",
    "compute.instances.localSsdInitializationError",
    "compute.instances.localSsdInitializationKeyError",
    "compute.instances.localSsdVerifyTarError",
    "compute.instances.localSsdRecoveryTimeoutError",
    "compute.instances.localSsdRecoveryFailedError",
)
"""System events after which an instance no longer runs, named in "Compute Engine audit logging information";
GoogleCloudPlatform/PerfKitBenchmarker and gcpdiag tell causes by the same types. From the fifth on they are those of
Google's own check of interruption counts (GoogleCloudPlatform/ml-auto-solutions), which takes them from Compute
Engine's list of instance events; its localSsdRecoveryAttempting is left out, because it does not end an instance."""

ENDS = (PREEMPTED, "delete", "stop", REPAIRED, *HALTED)
"""Types of zone operations that end an instance."""

LOG_METHODS = (
    PREEMPTED,
    "v1.compute.instances.delete",
    "beta.compute.instances.delete",
    "v1.compute.instances.stop",
    *ENDS[3:],
)
"""Methods of the audit log's entries that the logging sink sends to the queue. People and groups end instances through
the API; the entries of such calls contain the API's version."""

LOG_FILTER = 'resource.type="gce_instance" AND protoPayload.methodName=({})'.format(
    " OR ".join(f'"{name}"' for name in LOG_METHODS)
)
"""The sink's filter. It selects entries of the whole project; the scheduler ignores instances that it does not know."""

JOBS = CloudRules(
    # Google Cloud SDK documentation, "Configurations" (CLOUDSDK_SECTION_PROPERTY); google-auth's
    # environment_vars.py: GOOGLE_APPLICATION_CREDENTIALS, GOOGLE_CLOUD_PROJECT, GCE_METADATA_HOST and their like.
    variables=("GOOGLE_", "CLOUDSDK_", "GCE_METADATA_", "GCLOUD_"),
    # Names: Secret Manager API, secrets.create (secretId). A key takes one value of JSON.
    secrets={
        "secretmanager:NAME": r"secretmanager:(projects/[a-z0-9.:-]{1,100}/secrets/)?[A-Za-z0-9_-]{1,255}",
        "secretmanager:NAME#KEY": (
            r"secretmanager:(projects/[a-z0-9.:-]{1,100}/secrets/)?[A-Za-z0-9_-]{1,255}#[A-Za-z0-9_.-]{1,256}"
        ),
    },
    images={
        "LOCATION-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE@sha256:DIGEST": (
            r"[a-z0-9-]+-docker\.pkg\.dev/[a-z0-9.-]+(/[a-z0-9._-]+){2,}@sha256:[0-9a-f]{64}"
        )
    },
)
"""The environment variables that job files may not set on Google Cloud, the forms in which they name secrets (by the
name in Secret Manager), and that of images in Artifact Registry."""

# An instance counts until the operation that stops or deletes it is done, which is never less than what is billed:
# "Stopped instances do not incur VM usage charges while they are stopped" (Compute API, instances.stop). Nobody says
# whether the seconds between the signal and the end of a preempted VM are free; here they are not.
BILLING = BillingRules(
    # Compute Engine pricing, "VM instance pricing": by the second, with a minimum of one minute.
    minimum=timedelta(minutes=1),
    # Spot VMs, "Pricing": preempted less than a minute after its creation, it is not billed.
    free_within=timedelta(minutes=1),
    left_out=(
        "data transfer between zones and out of the region",
        "disks of the instances, local SSDs that were added among them",
        "Cloud Storage's storage and operations",
        "Cloud NAT",
        "Pub/Sub, Cloud Logging, Cloud Monitoring, Cloud KMS and Secret Manager",
        "taxes, discounts (of sustained or committed use too), credits and reservations",
    ),
)
"""Compute Engine's rules for billing an instance, and the other charges of Google."""


def instance_name(cluster: str, token: str, number: int) -> str:
    """Return the name of a launched instance. No two launches have the same names, because the end of the token is
    random. At most 63 characters."""
    return f"{name_prefix(cluster)}{token[-20:]}-{number:04d}"


def name_prefix(cluster: str) -> str:
    """Return the prefix of the names of all launched instances of a cluster. Conditions of roles use it."""
    return f"{cluster}-e-"
