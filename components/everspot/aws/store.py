"""The cluster's two buckets. Everything that has to outlive an instance is in them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import pulumi
from everspot_core.validation.problems import Problems
from pulumi_aws import s3

from everspot import common
from everspot.aws import arns, preview_queries, tagging
from everspot.aws.private_bucket import UNFINISHED_UPLOADS, close_bucket
from everspot.guard import update_guard
from everspot.parts import outputs

Rule = s3.BucketLifecycleConfigurationRuleArgsDict

NONCURRENT_DAYS = 7
"""Days after which old object versions, left from a time with versioning, are removed from the data bucket."""

AGENT_LOG_DAYS = 30
"""Days for which the agents' own logs are kept."""


_BUCKET_NAME = re.compile(r"^[a-z0-9][a-z0-9.-]*\Z")  # Amazon S3 User Guide, "General purpose bucket naming rules"


class AwsStoreArgs(TypedDict):
    """Inputs of `AwsStore`."""

    cluster: str
    """Name of the cluster, for tags."""
    tags: dict[str, str]
    """Tags of both buckets; Project, Team and Environment are mandatory."""
    retain: NotRequired[bool]
    """Whether the buckets outlive `pulumi destroy`, with their policies and settings. False deletes them with their
    contents. Default: true."""
    protect: NotRequired[bool]
    """Whether Pulumi refuses to delete or replace the buckets. Default: false."""
    kms_key_arn: NotRequired[pulumi.Input[str]]
    """A customer-managed KMS key for the objects. Default: keys managed by S3."""
    former_kms_key_arns: NotRequired[list[str]]
    """Earlier keys, which a change of the key has to name. Default: none."""
    jobs_expire_days: NotRequired[int]
    """Days after which everything that a job has written to the data bucket (checkpoints, logs, metrics, outputs) is
    removed, 30 to 3650. A job that waits longer than that starts from the beginning. Default: it is kept until
    `everspot gc` removes it."""


class AwsStore(pulumi.ComponentResource):
    """A control bucket (records, leases, events) and a data bucket (checkpoints, datasets, code, logs).

    Both are encrypted, private and answer only over TLS. Neither keeps old versions: objects in the data bucket are
    written once, and documents in the control bucket are written once or replaced by conditional writes.
    """

    control_url: pulumi.Output[str]
    """URL of the control bucket, s3://…?region=…: what the CLI needs to find the cluster."""
    data_url: pulumi.Output[str]
    """URL of the data bucket."""
    control_bucket: pulumi.Output[str]
    """Name of the control bucket."""
    data_bucket: pulumi.Output[str]
    """Name of the data bucket."""
    control_arn: pulumi.Output[str]
    """ARN of the control bucket."""
    data_arn: pulumi.Output[str]
    """ARN of the data bucket."""

    def __init__(self, name: str, args: AwsStoreArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("AwsStore"), name, {}, opts)
        problems = Problems()
        tagging.check_common(problems, args["cluster"], args["tags"])
        common.check_name(problems, name, "-control", 63, "buckets")
        problems.need(
            bool(_BUCKET_NAME.match(name)), "name", f"{name!r} begins the buckets' names: a-z, 0-9, dots and dashes"
        )
        check_store(problems, args)
        common.raise_bad(problems, f"AwsStore {name}")
        self._args = args
        self._retain = args.get("retain", True)
        # The settings that protect a bucket stay as long as the bucket does.
        self._child = pulumi.ResourceOptions(parent=self, retain_on_delete=self._retain)
        control = self._bucket(f"{name}-control")
        data = self._bucket(f"{name}-data")
        # Objects are written once, so an old version only costs money: a retired checkpoint is gone immediately. Said
        # and not left out, because buckets of earlier clusters are versioned: S3 suspends that in place.
        s3.BucketVersioning(
            f"{name}-data-versioning",
            bucket=data.id,
            versioning_configuration={"status": "Suspended"},
            opts=self._child,
        )
        self._lifecycle(f"{name}-control-lifecycle", control, [])
        self._lifecycle(f"{name}-data-lifecycle", data, _data_rules(args.get("jobs_expire_days")))
        self.control_bucket, self.data_bucket = control.id, data.id
        # S3 refuses a signature for another region, so the URL names it.
        region = preview_queries.read_region(self)
        self.control_url = pulumi.Output.concat("s3://", control.id, "?region=", region)
        self.data_url = pulumi.Output.concat("s3://", data.id, "?region=", region)
        self.control_arn, self.data_arn = control.arn, data.arn
        self.register_outputs(outputs(self))

    def _bucket(self, name: str) -> s3.Bucket:
        protection = pulumi.ResourceOptions(protect=self._args.get("protect", False) or None)
        bucket = s3.Bucket(
            name,
            force_destroy=not self._retain,
            tags=tagging.cluster_tags(self._args["cluster"], self._args["tags"]),
            opts=pulumi.ResourceOptions.merge(self._child, protection),
        )
        key, former_keys = self._args.get("kms_key_arn"), self._args.get("former_kms_key_arns", [])
        key_guard = update_guard(f"{name}-encryption", lambda change: refuse_lost_key(change, former_keys))
        close_bucket(name, bucket, key, self._child, key_guard)
        return bucket

    def _lifecycle(self, name: str, bucket: s3.Bucket, more: list[Rule]) -> None:
        s3.BucketLifecycleConfiguration(name, bucket=bucket.id, rules=[UNFINISHED_UPLOADS, *more], opts=self._child)


def check_store(problems: Problems, args: AwsStoreArgs) -> None:
    """Add a problem for each mistake in the buckets' key and in their retention times."""
    arns.check_arn(problems, args, "kms_key_arn", "kms", "key/")
    arns.check_arns(problems, "formerKmsKeyArns", args.get("former_kms_key_arns", []), "kms", "key/")
    if "jobs_expire_days" in args:
        problems.number(args["jobs_expire_days"], "jobsExpireDays", 30, 3650, whole=True)


def refuse_lost_key(change: pulumi.ResourceHookArgs, former_keys: Sequence[str]) -> None:
    """Refuse an update of a bucket's encryption that drops its key. What is stored under that key stays under it, and
    the roles could no longer read it. `former_keys`: the keys with which they may decrypt.

    Raises:
        pulumi.RunError: if the earlier key is neither the new one nor among the former ones.
    """
    old, new = (_keys(inputs) for inputs in (change.old_inputs, change.new_inputs))
    if dropped_keys := sorted(old - new - set(former_keys)):
        raise pulumi.RunError(
            f"kmsKeyArn: what is stored under {dropped_keys[0]} could no longer be read: "
            "name that key in formerKmsKeyArns"
        )


def _keys(inputs: Mapping[str, Any] | None) -> set[str]:
    """Return the keys of the rules of a bucket's encryption."""
    defaults = [rule.get("applyServerSideEncryptionByDefault") or {} for rule in (inputs or {}).get("rules") or ()]
    return {key for default in defaults if (key := default.get("kmsMasterKeyId"))}


def _data_rules(jobs_expire_days: int | None) -> list[Rule]:
    rules: list[Rule] = [
        {
            # Versions from the time when the bucket had some, and the marks that S3 leaves where one was deleted.
            "id": "old-versions",
            "status": "Enabled",
            "filter": {"prefix": ""},
            "noncurrent_version_expiration": {"noncurrent_days": NONCURRENT_DAYS},
            "expiration": {"expired_object_delete_marker": True},
        },
        _expiry("agent-logs", "agents/", AGENT_LOG_DAYS),
    ]
    # S3 cannot know which jobs have ended, or which parts a newer checkpoint still names. No checkpoint of a running
    # job names a part this old: the trainer uploads each checkpoint whole, and the agent uploads parts again after a
    # week (everspot_train/agent/folder.py, FRESH).
    return rules if jobs_expire_days is None else [*rules, _expiry("old-jobs", "jobs/", int(jobs_expire_days))]


def _expiry(name: str, prefix: str, days: int) -> Rule:
    return {"id": name, "status": "Enabled", "filter": {"prefix": prefix}, "expiration": {"days": days}}
