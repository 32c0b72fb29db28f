"""The cluster's two buckets. Everything that has to outlive an instance is in them."""

import re
from typing import Any, NotRequired, TypedDict

import pulumi
from everspot_clouds.gcp.network import resource_problem
from everspot_core.validation.problems import Problems
from pulumi_gcp import kms, storage

from everspot import common
from everspot.gcp import preview_queries, tagging
from everspot.parts import outputs

AGENT_LOG_DAYS = 30
"""Days for which the agents' own logs are kept."""

ABORT_UPLOAD_DAYS = 2
"""Days after which the parts of an unfinished upload are removed."""

KEY_FORM = "projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY"
"""The form of a key's name."""

_BUCKET_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]*\Z")  # Cloud Storage documentation, "About Cloud Storage buckets"


class GcpStoreArgs(TypedDict):
    """Inputs of `GcpStore`."""

    cluster: str
    """Name of the cluster, for labels."""
    tags: dict[str, str]
    """Tags of both buckets, as labels; Project, Team and Environment are mandatory."""
    retain: NotRequired[bool]
    """Whether the buckets outlive `pulumi destroy`. False deletes them with their contents. Default: true."""
    protect: NotRequired[bool]
    """Whether Pulumi refuses to delete or replace the buckets. Default: false."""
    kms_key: NotRequired[pulumi.Input[str]]
    """A customer-managed key for the objects, projects/…/cryptoKeys/NAME, in the cluster's region. Cloud Storage's
    service agent gets the permission to use it. Default: keys managed by Google."""
    jobs_expire_days: NotRequired[int]
    """Days after which everything that a job has written to the data bucket (checkpoints, logs, metrics, outputs) is
    removed, 30 to 3650. A job that waits longer than that starts from the beginning. Default: it is kept until
    `everspot gc` removes it."""


class GcpStore(pulumi.ComponentResource):
    """A control bucket (records, leases, events) and a data bucket (checkpoints, datasets, code, logs).

    Both are encrypted, never public and governed by IAM alone; Cloud Storage answers over TLS only. Neither keeps
    deleted or replaced objects, because every renewal of a lease would leave a copy that is billed for days.
    """

    control_url: pulumi.Output[str]
    """URL of the control bucket, gs://…: what the CLI needs to find the cluster."""
    data_url: pulumi.Output[str]
    """URL of the data bucket."""
    control_bucket: pulumi.Output[str]
    """Name of the control bucket."""
    data_bucket: pulumi.Output[str]
    """Name of the data bucket."""

    def __init__(self, name: str, args: GcpStoreArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("GcpStore"), name, {}, opts)
        problems = Problems()
        tagging.check_common(problems, args["cluster"], args["tags"])
        common.check_name(problems, name, "-control", 63, "buckets")
        fits = bool(_BUCKET_NAME.match(name)) and "google" not in name and not name.startswith("goog")
        problems.need(fits, "name", f"{name!r} begins the buckets' names: a-z, 0-9, dashes and _, and no google")
        check_store(problems, args)
        common.raise_bad(problems, f"GcpStore {name}")
        self._args = args
        self._retain = args.get("retain", True)
        self._child = pulumi.ResourceOptions(parent=self, retain_on_delete=self._retain)
        self._region = preview_queries.read_place(self).apply(
            lambda place: place["region"].upper()
        )  # as the API answers it
        granted = self._grant(f"{name}-key", args["kms_key"]) if "kms_key" in args else []
        control = self._bucket(f"{name}-control", [], granted)
        data = self._bucket(f"{name}-data", _data_rules(args.get("jobs_expire_days")), granted)
        self.control_bucket, self.data_bucket = control.name, data.name
        self.control_url = pulumi.Output.concat("gs://", control.name)
        self.data_url = pulumi.Output.concat("gs://", data.name)
        self.register_outputs(outputs(self))

    def _grant(self, name: str, key: pulumi.Input[str]) -> list[pulumi.Resource]:
        """Let Cloud Storage's service agent use the key; without this no bucket can be created with it (Cloud Storage
        documentation, "Use customer-managed encryption keys"). The grant outlives the setting and the cluster: what was
        stored under the key stays under it, and the project's other clusters have the same agent."""
        message = "kmsKey: Cloud Storage's service agent cannot be asked for (storage.projects.getServiceAccount)."
        agent = preview_queries.invoke(
            self, "storage/getProjectServiceAccount:getProjectServiceAccount", {}, failed=message
        )
        use = kms.CryptoKeyIAMMember(
            name,
            crypto_key_id=key,
            role="roles/cloudkms.cryptoKeyEncrypterDecrypter",
            member=agent.apply(lambda found: f"serviceAccount:{found['emailAddress']}"),
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
        )
        return [use]

    def _bucket(self, name: str, rules: list[dict[str, Any]], after: list[pulumi.Resource]) -> "storage.Bucket":
        unfinished = _rule("AbortIncompleteMultipartUpload", {"age": ABORT_UPLOAD_DAYS})
        key = self._args.get("kms_key")
        own = pulumi.ResourceOptions(protect=self._args.get("protect", False) or None, depends_on=after)
        return storage.Bucket(
            name,
            location=self._region,
            storage_class="STANDARD",
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            # On by default, for seven days.
            soft_delete_policy={"retention_duration_seconds": 0},
            versioning={"enabled": False},
            lifecycle_rules=[unfinished, *rules],
            encryption=None if key is None else {"default_kms_key_name": key},
            force_destroy=not self._retain,
            labels=tagging.cluster_labels(self._args["cluster"], self._args["tags"]),
            opts=pulumi.ResourceOptions.merge(self._child, own),
        )


def check_store(problems: Problems, args: GcpStoreArgs) -> None:
    """Add a problem for each mistake in the buckets' key and in their retention times."""
    key = args.get("kms_key")
    if isinstance(key, str):
        reason = resource_problem(key, KEY_FORM)
        problems.need(reason is None, "kmsKey", reason or "")
    if "jobs_expire_days" in args:
        problems.number(args["jobs_expire_days"], "jobsExpireDays", 30, 3650, whole=True)


def _data_rules(jobs_expire_days: int | None) -> list[dict[str, Any]]:
    rules = [_rule("Delete", {"age": AGENT_LOG_DAYS, "matches_prefixes": ["agents/"]})]
    # Cloud Storage cannot know which jobs have ended, or which parts a newer checkpoint still names. No checkpoint of a
    # running job names a part this old: the agent uploads parts again after a week (everspot_train/agent/folder.py,
    # FRESH).
    if jobs_expire_days is not None:
        rules.append(_rule("Delete", {"age": int(jobs_expire_days), "matches_prefixes": ["jobs/"]}))
    return rules


def _rule(action: str, condition: dict[str, Any]) -> dict[str, Any]:
    return {"action": {"type": action}, "condition": condition}
