"""Credentials of a person's tools for S3: the environment's, otherwise the ones that botocore finds, otherwise an
error."""

import os
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime, timedelta
from typing import Any

from everspot_clouds.base import CloudError, Trouble

_ASK_AGAIN = timedelta(minutes=5)
_WAYS = "log in (`aws sso login`, `aws configure`), set AWS_PROFILE, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


_BEFORE_PROFILE = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"),
    *("AWS_CREDENTIAL_EXPIRATION", "AWS_DEFAULT_PROFILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"),
)
"""Variables that AWS's tools prefer to the profile that AWS_PROFILE names."""


def select_profile(profile: str, environment: MutableMapping[str, str]) -> None:
    """Make all AWS tools of an environment use a profile: boto3, the AWS CLI, Pulumi."""
    for name in _BEFORE_PROFILE:
        environment.pop(name, None)
    environment["AWS_PROFILE"] = profile


def for_store(url: str, profile: str | None) -> Callable[[], dict[str, Any]] | None:
    """Return a provider of credentials for `Store.open`. None if the store finds them by itself.

    A profile wins, and otherwise keys in the environment, as in all AWS tools. Without both botocore searches in its
    own order: profiles, single sign-on, containers, and the metadata service unless AWS_EC2_METADATA_DISABLED is set.

    Raises:
        CloudError: if no credentials exist, or the profile cannot be used.
    """
    if not url.startswith("s3://") or (profile is None and os.environ.get("AWS_ACCESS_KEY_ID")):
        return None
    import botocore.exceptions
    import botocore.session

    try:
        session_credentials = botocore.session.Session(profile=profile).get_credentials()
        if session_credentials is None:
            raise CloudError(f"there are no AWS credentials for {url}", Trouble.CREDENTIALS, _WAYS)
        session_credentials.get_frozen_credentials()  # expired credentials fail here and not in the middle of a table
    except botocore.exceptions.BotoCoreError as error:
        words = f"the AWS credentials for {url} cannot be obtained: {error}"
        raise CloudError(words, Trouble.CREDENTIALS, _WAYS) from None
    return lambda: _as_obstore(session_credentials)


def _as_obstore(session_credentials: Any) -> dict[str, Any]:
    """Return the keys in obstore's form.

    Raises:
        ConnectionError: if the service that renews them does not answer, which the store takes for an outage.
    """
    import botocore.exceptions

    try:
        keys = session_credentials.get_frozen_credentials()  # renews them where they are of the kind that expires
    except (botocore.exceptions.ConnectionError, botocore.exceptions.HTTPClientError) as error:
        raise ConnectionError(f"the AWS credentials cannot be renewed: {error}") from error
    return {
        "access_key_id": keys.access_key,
        "secret_access_key": keys.secret_key,
        "token": keys.token,
        "expires_at": datetime.now(UTC) + _ASK_AGAIN,
    }
