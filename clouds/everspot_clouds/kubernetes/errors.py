"""The API server's errors, sorted by what can be done about them. Statuses are compared here and nowhere else."""

import json
import re
from typing import Any

from everspot_core.capacity.launching import LaunchTrouble
from kubernetes.client import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from everspot_clouds.base import CloudError, StillPending, Trouble

ERRORS: tuple[type[Exception], ...] = (ApiException, HTTPError, ConfigException)
"""What calls of the client raise."""
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, GONE = 401, 403, 404, 409, 410
ALREADY_EXISTS = "AlreadyExists"
"""The reason of a conflict whose name is taken (Kubernetes, `apimachinery/pkg/apis/meta/v1/types.go`)."""
_REQUEST_TIMEOUT, _TOO_MANY = 408, 429
_STATUSES = {
    UNAUTHORIZED: Trouble.CREDENTIALS,
    FORBIDDEN: Trouble.CREDENTIALS,
    _REQUEST_TIMEOUT: Trouble.TRANSIENT,
    CONFLICT: Trouble.TRANSIENT,
    GONE: Trouble.TRANSIENT,
    _TOO_MANY: Trouble.THROTTLED,
}
_ANONYMOUS = "system:anonymous"
"""Who a request without credentials is (Kubernetes, "Authenticating", Anonymous requests)."""
_DENIED = re.compile(r"cannot \S+ resource")
"""In RBAC's refusals (Kubernetes, `apiserver/pkg/endpoints/handlers/responsewriters/errors.go`)."""
_LOG_IN = "log in again (aws sso login), and then: aws eks update-kubeconfig --name NAME"


def trouble(error: Exception) -> Trouble | None:
    """Return the kind of failure of an error; None if it is not the API server's."""
    if isinstance(error, ApiException):
        status = int(error.status or 0)
        return _STATUSES.get(status, Trouble.REQUEST if 400 <= status < 500 else Trouble.TRANSIENT)
    if isinstance(error, ConfigException):
        return Trouble.CREDENTIALS
    return Trouble.TRANSIENT if isinstance(error, HTTPError | StillPending) else None


def to_cloud_error(error: Exception) -> CloudError:
    """Return an error of the client as a `CloudError`: a sentence, its kind and its fix."""
    kind = trouble(error) or Trouble.TRANSIENT
    if isinstance(error, ApiException):
        message = f"the API server refused ({error.status}): {error_message(error)}"
    else:
        message = f"the API server does not answer: {' '.join(str(error).split())}"
    fixes = {
        Trouble.CREDENTIALS: "`kubectl auth whoami` says who you are; ask for the right that is named",
        Trouble.TRANSIENT: "`kubectl cluster-info` says whether it can be reached; try again",
        Trouble.THROTTLED: "try again in a minute",
    }
    fix = _LOG_IN if is_status(error, UNAUTHORIZED) or _ANONYMOUS in message else fixes.get(kind, "")
    return CloudError(message, kind, fix)


def launch_trouble(error: ApiException) -> LaunchTrouble:
    """Return the kind of a refusal to create a pod.

    Status 403 has three meanings (Kubernetes, "Resource Quotas" and "Authorization"): a ResourceQuota is used up, the
    caller lacks a right, or an admission controller does not accept the pod.
    """
    if error.status == FORBIDDEN:
        message = error_message(error)
        if "exceeded quota" in message:
            return LaunchTrouble.QUOTA
        return LaunchTrouble.CREDENTIALS if _DENIED.search(message) else LaunchTrouble.REQUEST
    return LaunchTrouble((trouble(error) or Trouble.REQUEST).value)


def is_status(error: Exception, status: int) -> bool:
    """Return whether the API server answered with an HTTP status."""
    return isinstance(error, ApiException) and error.status == status


def error_code(error: ApiException) -> str:
    """Return the reason of an answer, such as `Forbidden`."""
    return str(_status(error).get("reason") or error.reason or error.status)


def error_message(error: ApiException) -> str:
    """Return the message of an answer."""
    return str(_status(error).get("message") or error.reason or error.status)


def _status(error: ApiException) -> dict[str, Any]:
    try:
        document = json.loads(error.body or "")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
