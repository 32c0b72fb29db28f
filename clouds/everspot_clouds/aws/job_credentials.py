"""Credentials for one job on AWS: a session of the jobs' role, limited by a session policy.

The session has what both the role and the policy allow (IAM user guide, "Session policies"). The role has what jobs of
the cluster need at most, and the policy names the keys of this job. The instance's role assumes it, so a session lasts
an hour at most (IAM user guide, "Role chaining").

Client libraries get the credentials by the container credential provider (AWS SDKs and Tools Reference Guide,
"Container credential provider"). It takes plain HTTP from the loopback address only.
"""

import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.access import JobAccess

from everspot_clouds.aws.errors import error_code, trouble
from everspot_clouds.base import CloudError, Trouble
from everspot_clouds.base.job_credentials import JobAnswer

LIFE = timedelta(hours=1)
"""How long a session lasts: the most that a role's session may assume another role for."""
RENEW_AFTER = timedelta(minutes=30)
"""The age at which a session is replaced. botocore begins to renew credentials 15 minutes before their end."""
LONGEST_POLICY = 2048
"""Characters of a session policy (IAM user guide, "IAM and AWS STS quotas")."""
DATASETS = "datasets/"
"""The prefix of the lists of datasets, and of their files."""
PATH = "/credentials"
HIDDEN = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"),
    *("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
    *("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_EC2_METADATA_SERVICE_ENDPOINT"),
)
"""Variables of the instance that SDKs would prefer to the container credential provider, or that lead around it."""
_LIMITS = {"connect_timeout": 5, "read_timeout": 15, "retries": {"total_max_attempts": 2, "mode": "standard"}}
_WAYS = "the agents' role has to be allowed to assume the jobs' role, and the network has to reach AWS's STS"
_log = logging.getLogger(__name__)


def session_policy(access: JobAccess, manifest: Manifest, partition: str = "aws") -> str:
    """Return the session policy of a job as JSON, as short as it can be: without white space and Sids, which count.

    Buckets of the cluster are reached by the keys of `access` alone. Further buckets and the buckets' key are left to
    the role. Where the names of datasets do not fit, all lists of datasets may be read: each lies under its digest and
    none can be listed, so a job still reads only those whose digests it knows.

    Raises:
        ValueError: if the job names more than a session policy holds.
    """
    policy = _policy(access, manifest, partition)
    if len(policy) > LONGEST_POLICY:
        reads = tuple(dict.fromkeys(DATASETS if key.startswith(DATASETS) else key for key in access.data_reads))
        policy = _policy(replace(access, data_reads=reads), manifest, partition)
    if len(policy) > LONGEST_POLICY:
        raise ValueError(
            f"AWS cannot limit the job's credentials to the outputs of so many jobs: the policy has {len(policy)} "
            f"characters, of {LONGEST_POLICY}. Name fewer jobs in `after`, or gather their outputs in a job between"
        )
    return policy


def _policy(access: JobAccess, manifest: Manifest, partition: str) -> str:
    control, data = _Bucket(manifest.control_url, partition), _Bucket(manifest.data_url, partition)
    statements: list[dict[str, Any]] = [
        _allow(["s3:GetObject", "s3:PutObject"], control.keys(access.control_documents)),
        _allow("s3:GetObject", data.keys(access.data_reads)),
        _allow(["s3:PutObject", "s3:AbortMultipartUpload"], data.keys(access.data_writes)),
        _allow("s3:DeleteObject", data.keys(access.data_deletes)),
        _listing(control, access.control_lists, data, access.data_lists),
        _allow("kms:*", "*"),
    ]
    if manifest.further_buckets:
        own = [control.arn, f"{control.arn}/*", data.arn, f"{data.arn}/*"]
        statements.append({"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "NotResource": own})
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))


class _Bucket:
    """A bucket with the prefix of its URL."""

    def __init__(self, url: str, partition: str) -> None:
        parts = urlsplit(url)
        self.arn = f"arn:{partition}:s3:::{parts.netloc}"
        self._prefix = parts.path.strip("/")

    def keys(self, names: Sequence[str]) -> list[str]:
        """Return ARNs of keys: of one where the name ends in `.json`, of all that begin so otherwise."""
        return [f"{self.arn}/{self.inside(name)}" for name in names]

    def inside(self, name: str) -> str:
        """Return a key of the store, or the pattern of a prefix, as the bucket knows it."""
        whole = f"{self._prefix}/{name}" if self._prefix else name
        return whole if whole.endswith(".json") else f"{whole}*"


def _allow(actions: str | list[str], resources: str | list[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": resources}


def _listing(
    control: _Bucket, control_lists: Sequence[str], data: _Bucket, data_lists: Sequence[str]
) -> dict[str, Any]:
    """Return the permission to list below prefixes: one statement, since no prefix of one bucket has keys in the other.

    StringLike and not its form IfExists, which would let a listing without a prefix show the names of all keys.
    """
    prefixes = [*(control.inside(prefix) for prefix in control_lists), *(data.inside(prefix) for prefix in data_lists)]
    return {**_allow("s3:ListBucket", [control.arn, data.arn]), "Condition": {"StringLike": {"s3:prefix": prefixes}}}


class AwsJobCredentials:
    """See `everspot_clouds.base.job_credentials.JobCredentials`. `role`: the ARN of the jobs' role."""

    hidden = HIDDEN

    def __init__(self, role: str, manifest: Manifest, clock: Clock, access: JobAccess) -> None:
        """Raises `ValueError` if the job names more than a session policy holds."""
        self._role, self._region, self._clock = role, manifest.region, clock
        self._policy = session_policy(access, manifest, role.split(":")[1])
        self._session = f"{access.job_id[:50]}-{access.epoch}"
        self._lock = threading.Lock()
        self._keys: dict[str, Any] = {}
        self._taken_at: timedelta | None = None

    def variables(self, address: str, secret: str, secret_file: Path) -> dict[str, str]:
        """See `JobCredentials`. The store's client knows the file alone, and older SDKs the variable alone."""
        return {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{address}{PATH}",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": secret,
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(secret_file),
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def renew(self) -> None:
        """See `JobCredentials`. While STS does not answer, a session that has not ended yet is kept."""
        with self._lock:
            age = self._clock.monotonic() - self._taken_at if self._taken_at is not None else LIFE
            if age < RENEW_AFTER:
                return
            asked_at = self._clock.monotonic()
            try:
                self._keys = self._assume()
            except CloudError as error:
                if age >= LIFE:
                    raise
                _log.warning("the credentials of %s are not renewed yet: %s", self._session, error)
            else:
                self._taken_at = asked_at

    def answer(self, path: str) -> JobAnswer | None:
        """See `JobCredentials`."""
        if path != PATH:
            return None
        self.renew()
        keys = self._keys
        answer = {
            "AccessKeyId": keys["AccessKeyId"],
            "SecretAccessKey": keys["SecretAccessKey"],
            "Token": keys["SessionToken"],
            "Expiration": keys["Expiration"].astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return JobAnswer(200, json.dumps(answer))

    def _assume(self) -> dict[str, Any]:
        try:
            # Not boto3's own session, which several threads must not share. botocore takes the region's endpoint, the
            # only one that a private network has.
            sts = boto3.session.Session().client("sts", region_name=self._region or None, config=Config(**_LIMITS))
            answer = sts.assume_role(
                RoleArn=self._role,
                RoleSessionName=self._session,
                DurationSeconds=int(LIFE.total_seconds()),
                Policy=self._policy,
            )
        except ClientError as error:
            kind = trouble(error)
            fix = _WAYS if kind is Trouble.CREDENTIALS else ""
            raise CloudError(f"{self._role} cannot be assumed: {error_code(error)}", kind, fix) from None
        except BotoCoreError as error:
            raise CloudError(f"{self._role} cannot be assumed: {error}", trouble(error), _WAYS) from None
        return dict(answer["Credentials"])
