"""Reads the secrets of jobs from Secret Manager. Values are returned and kept nowhere."""

import base64

import requests
from everspot_core.clock import Clock
from google.auth.exceptions import GoogleAuthError

from everspot_clouds.base import CloudError, Trouble
from everspot_clouds.gcp.errors import ApiError, trouble
from everspot_clouds.gcp.http_api import Api, open_api
from everspot_clouds.gcp.rules import JOBS
from everspot_clouds.secret_values import binary, chosen

_DENIED = "name it in the cluster's setting `secrets`"


class GcpSecrets:
    """Reads secrets with the instance's service account. A name without a project means the instance's own project."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._api: Api | None = None

    def __call__(self, reference: str) -> str:
        """Return the value of a secret, by a reference in one of the forms of `JOBS`.

        Raises:
            CloudError: if it cannot be read. The message contains no value.
        """
        if not JOBS.accepts(reference):
            raise CloudError(f"it has to be one of {', '.join(JOBS.secrets)}", Trouble.REQUEST)
        if self._api is None:
            self._api = open_api(self._clock)
        name, _, key = reference.partition(":")[2].partition("#")
        try:
            answer = self._api.get("secretmanager", f"{version_path(name, self._api.project)}:access")
        except ApiError as error:
            kind = trouble(error)
            words = error.code or str(error.refusal.status)
            raise CloudError(words, kind, _DENIED if kind is Trouble.CREDENTIALS else "") from None
        except (requests.RequestException, GoogleAuthError) as error:
            raise CloudError(type(error).__name__, trouble(error)) from None
        return chosen(_text(str((answer.get("payload") or {}).get("data") or "")), key)


def version_path(name: str, project: str) -> str:
    """Return the newest version of a secret, by its id or its whole name."""
    whole = name if name.startswith("projects/") else f"projects/{project}/secrets/{name}"
    return whole if "/versions/" in whole else f"{whole}/versions/latest"


def _text(data: str) -> str:
    try:
        return base64.b64decode(data).decode()
    except ValueError:
        raise binary() from None
