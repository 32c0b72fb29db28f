"""Credentials of a person's tools for Cloud Storage: an access token of the environment, otherwise those of
google-auth."""

import os
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime, timedelta
from typing import Any

from everspot_clouds.base import CloudError, Trouble

_SOON = timedelta(minutes=5)
"""The time after which a token without an end is renewed."""
PROFILE_VARIABLE = "CLOUDSDK_ACTIVE_CONFIG_NAME"
"""The variable of gcloud that names a configuration: its account and its project."""


def select_profile(profile: str, environment: MutableMapping[str, str]) -> None:
    """Make gcloud, and with it all tools that ask it for the project, use a configuration."""
    environment[PROFILE_VARIABLE] = profile


def for_store(url: str, profile: str | None) -> Callable[[], dict[str, Any]] | None:
    """Return a provider of tokens for `Store.open`. None if the store finds them by itself: on an instance, and where
    GOOGLE_BASE_URL names another Cloud Storage.

    A profile is a configuration of gcloud (`gcloud config configurations list`). It gives the project; Application
    Default Credentials are one file for all configurations.

    Raises:
        CloudError: if no credentials exist.
    """
    if not url.startswith("gs://"):
        return None
    if profile is None and (os.environ.get("GCE_METADATA_HOST") or os.environ.get("GOOGLE_BASE_URL")):
        return None
    from google.auth.exceptions import GoogleAuthError, TransportError
    from google.auth.transport.requests import Request

    from everspot_clouds.gcp.http_api import WAYS, credentials

    try:
        default_credentials, _ = credentials()
        if not default_credentials.valid and not default_credentials.token:
            default_credentials.refresh(Request())  # expired credentials fail here and not in the middle of a table
    except (GoogleAuthError, OSError) as error:
        words = f"the Google Cloud credentials for {url} cannot be obtained: {error}"
        raise CloudError(words, Trouble.CREDENTIALS, WAYS) from None

    def token() -> dict[str, Any]:
        if (
            not default_credentials.valid
            and getattr(default_credentials, "refresh_token", None) is None
            and default_credentials.expiry is None
            and default_credentials.token
        ):
            return {"token": default_credentials.token, "expires_at": datetime.now(UTC) + _SOON}
        if not default_credentials.valid:
            try:
                default_credentials.refresh(Request())
            except TransportError as error:  # by this class the store takes it for an outage
                raise ConnectionError(f"the Google Cloud credentials cannot be renewed: {error}") from error
        ends = (
            default_credentials.expiry.replace(tzinfo=UTC)
            if default_credentials.expiry is not None
            else datetime.now(UTC) + _SOON
        )
        return {"token": default_credentials.token, "expires_at": ends}

    return token
