"""Logs in to Artifact Registry with the instance's service account (Artifact Registry documentation, "Authenticating
using the Docker Registry HTTP API")."""

import os

import google.auth.transport.requests
import requests
from everspot_core.jobs.image_reference import RegistryImage
from google.auth.exceptions import GoogleAuthError

from everspot_clouds.base import RegistryLogin, Trouble
from everspot_clouds.gcp.endpoints import ENDPOINT_VARIABLE
from everspot_clouds.gcp.errors import trouble
from everspot_clouds.gcp.http_api import credentials
from everspot_clouds.image_registry import RegistryError

HOST = "-docker.pkg.dev"
"""The end of the hosts of Artifact Registry's repositories of images."""
_DENIED = "name its repository in the cluster's setting `imageRepositories`"


def log_in(image: RegistryImage) -> RegistryLogin:
    """Return access to the registry of an image, by an access token of the metadata server."""
    if not image.host.endswith(HOST):
        raise RegistryError(f"{image.host} is no host of Artifact Registry", Trouble.REQUEST)
    try:
        own, _ = credentials()
        if not own.valid:
            own.refresh(google.auth.transport.requests.Request())
    except (GoogleAuthError, requests.RequestException) as error:
        raise RegistryError(f"there is no access token: {type(error).__name__}", trouble(error)) from None
    local = os.environ.get(ENDPOINT_VARIABLE)
    if not local:
        return RegistryLogin(f"https://{image.host}", f"Bearer {own.token}", fix=_DENIED)
    return RegistryLogin(f"{local.rstrip('/')}/artifactregistry", f"Bearer {own.token}", {"Host": image.host}, _DENIED)
