"""Whose credentials the CLI takes for S3: those of the environment, else whatever botocore finds, else it says so."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from everspot_cli.errors import CliError, Exit
from everspot_cli.nearby import with_local_cloud

_ASK_AGAIN = timedelta(minutes=5)
_WAYS = "log in (`aws sso login`, `aws configure`), set AWS_PROFILE, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


def for_store(url: str, profile: str | None) -> Callable[[], dict[str, Any]] | None:
    """A provider of credentials for `Store.open`; None where the store knows better by itself.

    Keys in the environment go before everything, as they do everywhere in AWS. Without, botocore looks in its own
    order: profiles, single sign-on, containers, and the metadata service unless AWS_EC2_METADATA_DISABLED is set.

    Raises:
        CliError: if there are none, or the profile cannot be used.
    """
    if not url.startswith("s3://") or (profile is None and os.environ.get("AWS_ACCESS_KEY_ID")):
        return None
    import botocore.exceptions
    import botocore.session

    try:
        found = botocore.session.Session(profile=profile).get_credentials()
        if found is None:
            raise CliError(f"there are no AWS credentials for {url}", Exit.UNAVAILABLE, hint=with_local_cloud(_WAYS))
        found.get_frozen_credentials()  # what has expired is found now, not in the middle of a table
    except botocore.exceptions.BotoCoreError as error:
        raise CliError(
            f"the AWS credentials for {url} cannot be had: {error}", Exit.UNAVAILABLE, hint=with_local_cloud(_WAYS)
        ) from None
    return lambda: _as_obstore(found)


def _as_obstore(found: Any) -> dict[str, Any]:
    keys = found.get_frozen_credentials()  # renews them where they are of the kind that expires
    return {
        "access_key_id": keys.access_key,
        "secret_access_key": keys.secret_key,
        "token": keys.token,
        "expires_at": datetime.now(UTC) + _ASK_AGAIN,
    }
