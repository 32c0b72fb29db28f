"""Permissions of the custom roles, and the conditions of their bindings, as data. The components attach them, and tests
evaluate them.

No binding uses a basic role, and no service account has a key. The sources: Cloud Storage documentation, "IAM
permissions for XML requests", which the stores' client sends; Compute Engine documentation, "Compute Engine roles and
permissions" and the permissions that each method of the REST reference names. Prefixes are those of the store's layout.

Conditions have three forms only: `resource.name.startsWith`, `resource.name.extract(…).startsWith` and a comparison
of `resource.type`, joined by `||` (IAM documentation, "Attribute reference for IAM Conditions"; "Configure
resource-based access").
"""

from collections.abc import Sequence
from dataclasses import dataclass

READ = ("storage.objects.get", "storage.objects.list")
"""Permissions to read a bucket. Without the second one a missing object is answered with 403 instead of 404."""

WRITE = (
    "storage.multipartUploads.abort",
    "storage.multipartUploads.create",
    "storage.objects.create",
    "storage.objects.delete",
)
"""Permissions to write objects below some prefixes. Replacing an object needs the permission to delete it, so a writer
may delete documents too."""

ADD = ("storage.multipartUploads.abort", "storage.multipartUploads.create", "storage.objects.create")
"""Permissions to create objects below some prefixes, and to replace or delete none."""

JOB_DELETES = ("storage.objects.delete",)
"""Permission that a job's limited credentials have where the job deletes, and may create nothing. Nobody is granted the
role: it is named in the limits (`everspot_clouds.gcp.job_credentials`), and no role of Google's has it alone."""

LEAVE = ("compute.instances.delete",)
"""Permissions of agents on machines with the names of the cluster's agents, to delete their own: a machine that only
switches itself off stays, and its disk is billed."""

WATCH = (
    # advice.capacity and advice.capacityHistory
    "compute.advice.capacity",
    "compute.advice.capacityHistory",
    # instances.aggregatedList
    "compute.instances.list",
    # zoneOperations.list, of each zone of the region: the operations that ended machines
    "compute.regions.get",
    "compute.zoneOperations.list",
)
"""Permissions of the scheduler in the project, to read instances, operations and advice."""

LISTEN = ("pubsub.subscriptions.consume",)
"""Permissions of the scheduler on its own subscription, to pull and to acknowledge."""

LAUNCH = (
    "compute.disks.create",
    "compute.disks.setLabels",
    "compute.images.useReadOnly",
    "compute.instanceTemplates.useReadOnly",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
    "compute.instances.setTags",
    "compute.regionOperations.get",
    "compute.subnetworks.use",
)
"""Permissions of the scheduler for elastic capacity: `regionInstances.bulkInsert` from a template, and the end of those
instances (Compute Engine documentation, "Create VMs in bulk", required permissions)."""

ACT_AS = ("iam.serviceAccounts.actAs",)
"""Permission of the scheduler on the agents' service account, which launched machines get."""

PUT_METRICS = ("monitoring.timeSeries.create",)
"""Permission of the scheduler in the project, with monitoring."""

VIEWER, ACCESSOR, PUBLISHER, PULLER = (
    "roles/storage.objectViewer",
    "roles/secretmanager.secretAccessor",
    "roles/pubsub.publisher",
    "roles/artifactregistry.reader",
)
"""Google's own roles, for single buckets, secrets, topics and repositories that the settings name: these may be in
another project, where this project's custom roles cannot be granted."""

AGENT_WRITES = ("records/", "instances/", "heads/", "events/")
"""Prefixes of the control bucket that agents and trainers write."""

AGENT_READS = ("jobs/", "code/", "datasets/", "wheels/")
"""Prefixes of the data bucket that agents read."""

AGENT_KEEPS = ("jobs/", "agents/")
"""Prefixes of the data bucket that agents write: checkpoints, logs, metrics; their own logs."""

SCHEDULER_WRITES = (
    *("jobs/", "records/", "assignments/", "events/", "ledger/", "schedulers/", "faults/", "archive/", "launching/"),
    *("waiting.json", "usage.json", "pools.json"),
    # Prefixes that they only delete from.
    *("drills/", "cancels/", "instances/"),
)
"""Prefixes of the control bucket that schedulers write or delete from."""

NOTIFIER_KEEPS = ("told/",)
"""Prefixes of the control bucket where a scheduler notes which notifications it has sent."""

PREFIXES_AT_ONCE = 10
"""The most prefixes in one condition, which may have 12 logical operators (IAM documentation, "Quotas and limits")."""

INSTANCE = "compute.googleapis.com/Instance"


@dataclass(frozen=True)
class Condition:
    """A condition of a binding. `title` distinguishes bindings of one role."""

    title: str
    expression: str


def below(bucket: str, prefixes: Sequence[str]) -> list[Condition]:
    """Return the conditions for the objects of a bucket below some prefixes, as few as possible."""
    groups = [prefixes[at : at + PREFIXES_AT_ONCE] for at in range(0, len(prefixes), PREFIXES_AT_ONCE)]
    return [Condition(f"below-{number}", _match_prefixes(bucket, group)) for number, group in enumerate(groups)]


def below_or_list(bucket: str, prefixes: Sequence[str]) -> Condition:
    """Return one such condition, which also permits to list the bucket, a permission on the bucket itself."""
    return Condition(
        "below-or-list", f'resource.name == "projects/_/buckets/{bucket}" || {_match_prefixes(bucket, prefixes)}'
    )


def archived(bucket: str, prefix: str, begins: str) -> Condition:
    """Return a condition for the documents in folders of months below a prefix whose names begin so. What the
    extraction finds is the month, which the name has to follow."""
    month = f'resource.name.extract("/buckets/{bucket}/objects/{prefix}{{month}}/{begins}")'
    return Condition("archived", f'{month}.startsWith("2")')


def match_machines(prefixes: Sequence[str]) -> Condition:
    """Return a condition for the machines whose names begin so, and for everything that is no machine."""
    begins = " || ".join(f'resource.name.extract("/instances/{{name}}").startsWith("{prefix}")' for prefix in prefixes)
    return Condition("own-machines", f'resource.type != "{INSTANCE}" || {begins}')


def _match_prefixes(bucket: str, prefixes: Sequence[str]) -> str:
    return " || ".join(f'resource.name.startsWith("projects/_/buckets/{bucket}/objects/{p}")' for p in prefixes)
