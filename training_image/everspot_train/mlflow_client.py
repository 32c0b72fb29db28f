"""MLflow's REST API, as far as one run needs it. MLflow itself need not be installed.

https://mlflow.org/docs/latest/api_reference/rest-api.html
"""

import base64
import hashlib
import json
import posixpath
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any, NamedTuple

from everspot_core.jobs.tracking import allows_credentials

MOST_ENTITIES = 1000
"""The most metrics, parameters and tags together that MLflow takes in one `log-batch`."""
LONGEST_KEY = 250
"""The longest name of a metric, parameter or tag (`MAX_ENTITY_KEY_LENGTH`), characters."""
_TIMEOUT = 10.0
_MOST_BYTES = 1 << 20
_TRY_AGAIN = (408, 425, 429)
_NOT_OF_A_KEY = re.compile(r"[^\w.\- /]+")


class TrackerUnavailable(Exception):
    """MLflow did not answer, but perhaps a proxy in front of it, or it asks to be called later."""


class TrackerRefused(Exception):
    """The server refuses the request, and would refuse it again."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Metric(NamedTuple):
    """A value of a metric at a step. `milliseconds`: since 1970."""

    name: str
    value: float
    step: int
    milliseconds: int


class MlflowClient:
    """Calls one tracking server. All methods raise `TrackerUnavailable` or `TrackerRefused`.

    Args:
        environment: has the credentials. They are sent by https or within the machine only.
    """

    def __init__(self, url: str, environment: Mapping[str, str]) -> None:
        self._url = url.rstrip("/")
        # A redirection would take the credentials to another server.
        self._opener = urllib.request.build_opener(_NoRedirection())
        self._headers = {"Content-Type": "application/json", **_authorization(url, environment)}

    def find_experiment(self, name: str) -> str:
        """Return the id of the experiment. Create it if it does not exist."""
        try:
            answer = self._call("experiments/get-by-name", {"experiment_name": name}, post=False)
            return str(answer["experiment"]["experiment_id"])
        except TrackerRefused as error:
            if error.code != "RESOURCE_DOES_NOT_EXIST":
                raise
        try:
            return str(self._call("experiments/create", {"name": name})["experiment_id"])
        except TrackerRefused as error:
            if error.code != "RESOURCE_ALREADY_EXISTS":  # another job has just created it
                raise
        return self.find_experiment(name)

    def find_run(self, experiment_id: str, tag: str, value: str) -> str | None:
        """Return the id of the oldest run with this tag; None without one."""
        answer = self._call(
            "runs/search",
            {
                "experiment_ids": [experiment_id],
                "filter": f"tags.`{tag}` = '{value}'",
                "order_by": ["attributes.start_time ASC"],
                "max_results": 1,
            },
        )
        runs = answer.get("runs") or []
        return str(runs[0]["info"]["run_id"]) if runs else None

    def create_run(self, experiment_id: str, name: str, milliseconds: int, tags: Mapping[str, str]) -> str:
        """Create a run and return its id."""
        body = {"experiment_id": experiment_id, "run_name": name, "start_time": milliseconds, "tags": _pairs(tags)}
        return str(self._call("runs/create", body)["run"]["info"]["run_id"])

    def log(self, run_id: str, metrics: Sequence[Metric], params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Add metrics, parameters and tags to a run."""
        values = [
            {"key": to_key(m.name), "value": m.value, "step": m.step, "timestamp": m.milliseconds} for m in metrics
        ]
        body = {"run_id": run_id, "metrics": values, "params": _pairs(params), "tags": _pairs(tags)}
        self._call("runs/log-batch", body)

    def update(self, run_id: str, status: str, milliseconds: int | None) -> None:
        """Set the status of a run, and its end."""
        end = {"end_time": milliseconds} if milliseconds is not None else {}
        self._call("runs/update", {"run_id": run_id, "status": status, **end})

    def _call(self, path: str, fields: Mapping[str, Any], *, post: bool = True) -> dict[str, Any]:
        url, data = f"{self._url}/api/2.0/mlflow/{path}", json.dumps(fields).encode()
        if not post:
            url, data = f"{url}?{urllib.parse.urlencode(fields)}", b""
        request = urllib.request.Request(url, data or None, self._headers)
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as answer:
                content: Any = json.loads(answer.read(_MOST_BYTES) or b"{}")
        except urllib.error.HTTPError as error:
            with error:
                raise _read_error(error) from None
        except (OSError, HTTPException, ValueError) as error:
            raise TrackerUnavailable(f"{type(error).__name__}: {error}") from None
        if not isinstance(content, dict):
            raise TrackerUnavailable("the answer is no object")
        return content


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        """Follow none: the answer is an error then."""


def _read_error(error: urllib.error.HTTPError) -> TrackerUnavailable | TrackerRefused:
    try:
        content = json.loads(error.read(_MOST_BYTES))
        code, message = str(content.get("error_code", "")), str(content.get("message", ""))[:300]
    except (OSError, HTTPException, ValueError, AttributeError):
        code, message = "", ""
    words = f"HTTP {error.code} {code} {message}".strip()
    if not code or error.code >= 500 or error.code in _TRY_AGAIN:
        return TrackerUnavailable(words)
    return TrackerRefused(words, code)


def _authorization(url: str, environment: Mapping[str, str]) -> dict[str, str]:
    token, name = environment.get("MLFLOW_TRACKING_TOKEN"), environment.get("MLFLOW_TRACKING_USERNAME")
    if not allows_credentials(url):
        return {}
    if token:
        return {"Authorization": f"Bearer {token}"}
    if name:
        pair = f"{name}:{environment.get('MLFLOW_TRACKING_PASSWORD', '')}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {}


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in {to_key(n): v for n, v in values.items()}.items()]


def to_key(name: str) -> str:
    """Return the key under which MLflow takes a metric, parameter or tag: what it allows in none becomes `_`.

    MLflow refuses a whole request for one wrong key (`mlflow/utils/validation.py`). A key has letters, digits and
    `_-. /`, in later releases `:` too, and is a relative path as `normpath` writes it. A key that is too long ends in
    a digest.
    """
    key = _NOT_OF_A_KEY.sub("_", name)
    if key != posixpath.normpath(key) or key.startswith(("/", "..")) or key == ".":
        key = key.replace("/", "_").strip(".")
    if len(key) > LONGEST_KEY:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        key = f"{key[: LONGEST_KEY - 9].rstrip('/.')}-{digest}"
    return key or "_"
