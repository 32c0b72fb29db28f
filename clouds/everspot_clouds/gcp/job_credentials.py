"""Credentials for one job on Google Cloud: a downscoped token of the agents' service account.

The token has what both the account's policies and one rule of a Credential Access Boundary allow, and other services
than Cloud Storage refuse it (IAM documentation, "Credential Access Boundaries overview"; Security Token Service API,
`AccessBoundary`). It ends with the token that it was exchanged for, within an hour.

Client libraries get it from an emulation of the metadata server. The job's secret is the first part of its path:
google-auth, gcloud, Go's `metadata` and obstore put `http://` before the value of their variable and
`/computeMetadata/v1/` after it. Nothing else of the instance's metadata is served but its names.
"""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.access import JobAccess

from everspot_clouds.base import CloudError, MetadataError, Trouble
from everspot_clouds.base.job_credentials import JobAnswer
from everspot_clouds.gcp import endpoints
from everspot_clouds.gcp.metadata import FLAVOR, MetadataServer

RENEW_BEFORE = timedelta(minutes=10)
"""The life left at which a newer token is asked for. Metadata servers have one 5 minutes before the end of the last one
(Compute Engine documentation, "Authenticate workloads using service accounts"), and obstore asks for it then."""
MOST_RULES = 10
"""Rules of a boundary (Security Token Service API, `AccessBoundary`)."""
MOST_TERMS = 13
"""Parts of a condition that has 12 logical operators (IAM documentation, "Quotas and limits")."""
LONGEST_CONDITION = 2048
"""Characters of a condition's expression."""
MOST_READ_BUCKETS = 5
"""Further buckets: every job needs a rule for its documents, one to write and one to delete, and two remain for the
names that it reads."""
LIST_PREFIX = "storage.googleapis.com/objectListPrefix"
"""The attribute of a listing that has its prefix (IAM documentation, "Credential Access Boundaries overview")."""
USER, VIEWER, CREATOR = ("roles/storage.objectUser", "roles/storage.objectViewer", "roles/storage.objectCreator")
DATASETS = "datasets/"
"""The prefix of the lists of datasets, and of their files."""
ROOT = "/computeMetadata/v1"
ACCOUNTS = "instance/service-accounts"
TOKEN, EMAIL = f"{ACCOUNTS}/default/token", f"{ACCOUNTS}/default/email"
PASSED = ("project/project-id", "project/numeric-project-id", "instance/id", "instance/name", "instance/zone")
"""Values that the emulation reads from the instance's own metadata server. They are no secrets, and Google's libraries
fill in projects and zones with them."""
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
HIDDEN = (
    *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_OAUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN", "CLOUDSDK_CONFIG"),
    *("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", "CLOUDSDK_ACTIVE_CONFIG_NAME"),
    *("CLOUDSDK_AUTH_IMPERSONATE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH"),
    *("GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_BEARER_TOKEN", "SERVICE_ACCOUNT", "NO_GCE_CHECK"),
)
"""Variables of the instance that libraries would prefer to the metadata server, or that lead around it."""
_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS = "urn:ietf:params:oauth:token-type:access_token"
_TIME = (5.0, 15.0)  # seconds to connect, and between two bytes
_WAYS = (
    "the Security Token Service has to be on in the project (`gcloud services enable sts.googleapis.com`), and the "
    "network has to reach it"
)
_log = logging.getLogger(__name__)


def access_boundary(access: JobAccess, manifest: Manifest) -> dict[str, Any]:
    """Return the Credential Access Boundary of a job.

    Documents are replaced, which needs the permission to delete them. Of the data, the job creates below its own
    prefixes and deletes by the jobs' role, which has that permission alone: no role of Google's has. Where the names
    that the job reads do not fit, all lists of datasets may be read: each lies under its digest and none can be listed,
    so a job still reads only those whose digests it knows.

    Raises:
        ValueError: if the job names more than a boundary holds.
    """
    rules = _rules(access, manifest)
    if len(rules) > MOST_RULES:
        reads = tuple(dict.fromkeys(DATASETS if key.startswith(DATASETS) else key for key in access.data_reads))
        rules = _rules(replace(access, data_reads=reads), manifest)
    if len(rules) > MOST_RULES:
        raise ValueError(
            f"Google cannot limit the job's credentials to so many names: the boundary has {len(rules)} rules, of "
            f"{MOST_RULES}. Name fewer jobs in `after`, or gather their outputs in a job between"
        )
    return {"accessBoundary": {"accessBoundaryRules": rules}}


def _rules(access: JobAccess, manifest: Manifest) -> list[dict[str, Any]]:
    control, data = _Bucket.from_url(manifest.control_url), _Bucket.from_url(manifest.data_url)
    changed = (*access.data_deletes, *access.data_writes)
    rules = [
        *_packed(
            control, USER, [*map(control.below, access.control_documents), *map(control.list, access.control_lists)]
        ),
        *_packed(data, CREATOR, map(data.below, access.data_writes)),
        # Sending an upload again replaces what the lost answer was about.
        *_packed(data, manifest.job_role or "", map(data.below, changed)),
        *_packed(data, VIEWER, [*map(data.below, access.data_reads), *map(data.list, access.data_lists)]),
    ]
    return rules + [_rule(_Bucket(name, ""), VIEWER) for name in manifest.read_buckets or ()]


@dataclass(frozen=True)
class _Bucket:
    """A bucket with the prefix of its URL."""

    name: str
    prefix: str

    @classmethod
    def from_url(cls, url: str) -> "_Bucket":
        parts = urlsplit(url)
        path = parts.path.strip("/")
        return cls(parts.netloc, f"{path}/" if path else "")

    def below(self, name: str) -> str:
        """Return the condition for a key where the name ends in `.json`, for all that begin so otherwise."""
        whole = _quoted(f"projects/_/buckets/{self.name}/objects/{self.prefix}{name}")
        return f"resource.name == {whole}" if name.endswith(".json") else f"resource.name.startsWith({whole})"

    def list(self, name: str) -> str:
        """Return the condition for listings below a prefix."""
        return f"api.getAttribute('{LIST_PREFIX}', '').startsWith({_quoted(self.prefix + name)})"


def _quoted(text: str) -> str:
    """Return a string literal of the Common Expression Language."""
    if not text.isprintable() or "'" in text or "\\" in text:
        raise ValueError(f"{text!r} cannot be named in a condition")
    return f"'{text}'"


def _packed(bucket: _Bucket, role: str, terms: Iterable[str]) -> list[dict[str, Any]]:
    """Return as few rules as possible for a role under any of these conditions."""
    groups: list[list[str]] = [[]]
    for term in dict.fromkeys(terms):
        if len(groups[-1]) == MOST_TERMS or len(_any([*groups[-1], term])) > LONGEST_CONDITION:
            groups.append([])
        groups[-1].append(term)
    return [_rule(bucket, role, _any(group)) for group in groups if group]


def _any(terms: Sequence[str]) -> str:
    return " || ".join(terms)


def _rule(bucket: _Bucket, role: str, expression: str = "") -> dict[str, Any]:
    condition = {"availabilityCondition": {"expression": expression}} if expression else {}
    return {
        "availableResource": f"//storage.googleapis.com/projects/_/buckets/{bucket.name}",
        "availablePermissions": [f"inRole:{role}"],
        **condition,
    }


@dataclass(frozen=True)
class _Tokens:
    """The agent's token, the job's token that it was exchanged for, and when both end, by the clock of this machine."""

    source: str
    job: str
    ends_at: timedelta


class GcpJobCredentials:
    """See `everspot_clouds.base.job_credentials.JobCredentials`."""

    hidden = HIDDEN

    def __init__(
        self,
        manifest: Manifest,
        clock: Clock,
        access: JobAccess,
        getenv: Callable[[str], str | None] = os.environ.get,
    ) -> None:
        """Raises `ValueError` if the job names more than a boundary holds."""
        self._clock = clock
        self._options = quote(json.dumps(access_boundary(access, manifest)))
        self._job = f"{access.job_id}, epoch {access.epoch}"
        self._server = MetadataServer(endpoints.metadata_base(getenv), clock)
        self._url = f"{endpoints.base('sts', getenv)}/token"
        self._lock = threading.Lock()
        self._tokens: _Tokens | None = None
        self._values: dict[str, str] = {}

    def variables(self, address: str, secret: str, secret_file: Path) -> dict[str, str]:
        """See `JobCredentials`. The first variable is that of the libraries, the second one that of gcloud and of older
        libraries, and by the third one google-auth finds out whether there is a metadata server. The last one keeps
        google-auth from asking by TLS, as it does where the instance has certificates of its metadata server."""
        place = f"{address}/{secret}"
        names = ("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP")
        return {**dict.fromkeys(names, place), "GCE_METADATA_MTLS_MODE": "none"}

    def renew(self) -> None:
        """See `JobCredentials`. While Google does not answer, a token that has not ended yet is kept."""
        with self._lock:
            remaining = self._remaining()
            if remaining >= RENEW_BEFORE:
                return
            try:
                self._tokens = self._renewed()
            except CloudError as error:
                if remaining <= timedelta(0):
                    raise
                _log.warning("the credentials of %s are not renewed yet: %s", self._job, error)

    def answer(self, path: str) -> JobAnswer | None:
        """See `JobCredentials`. The account goes by `default` and by its email, and its folder is answered as JSON,
        which is what libraries ask for. Identity tokens are not served: they would be the agents'."""
        place = path.rstrip("/")
        if place in ("", ROOT.partition("/v1")[0]):
            return _text("computeMetadata/\n")  # by this, libraries find out whether there is a metadata server
        if not place.startswith(f"{ROOT}/"):
            return None
        name = place.removeprefix(f"{ROOT}/")
        if name in PASSED:
            return _text(self._value(name))
        if name != ACCOUNTS and not name.startswith(f"{ACCOUNTS}/"):
            return None
        email = self._value(EMAIL)
        account, _, leaf = name.removeprefix(ACCOUNTS).lstrip("/").partition("/")
        if not account:
            return _text(f"default/\n{email}/\n")
        return self._of_account(email, leaf) if account in ("default", email) else None

    def _of_account(self, email: str, leaf: str) -> JobAnswer | None:
        if leaf == "token":
            self.renew()
            job_token = self._tokens.job if self._tokens is not None else ""
            seconds = max(int(self._remaining().total_seconds()), 0)
            return _json({"access_token": job_token, "expires_in": seconds, "token_type": "Bearer"})
        texts = {"email": email, "scopes": "\n".join(SCOPES), "aliases": "default"}
        if not leaf:
            return _json({"aliases": ["default"], "email": email, "scopes": list(SCOPES)})
        return _text(texts[leaf]) if leaf in texts else None

    def _remaining(self) -> timedelta:
        """Return how long the job's token lasts from now on; nothing without one."""
        return self._tokens.ends_at - self._clock.monotonic() if self._tokens is not None else timedelta(0)

    def _renewed(self) -> _Tokens:
        """Return the tokens as they are now: the same ones, while the agent's own token is the same."""
        asked_at = self._clock.monotonic()
        try:
            content = json.loads(self._value(TOKEN, keep=False))
            source, life = str(content["access_token"]), timedelta(seconds=int(content["expires_in"]))
        except (ValueError, KeyError, TypeError):
            raise CloudError("the metadata server's answer has no token", Trouble.TRANSIENT) from None
        if self._tokens is not None and self._tokens.source == source:
            return self._tokens
        return _Tokens(source, self._exchange(source), asked_at + life)

    def _value(self, path: str, *, keep: bool = True) -> str:
        """Return a value of the instance's metadata. `keep`: whether it never changes. Raises `CloudError`."""
        if path in self._values:
            return self._values[path]
        try:
            value = self._server.get(path)
        except MetadataError as error:
            raise CloudError(f"the metadata server does not answer: {error}", Trouble.TRANSIENT) from None
        if value is None:
            raise CloudError(f"this instance has no {path}", Trouble.CREDENTIALS, "give it a service account")
        if keep:
            self._values[path] = value.strip()
        return value.strip()

    def _exchange(self, source: str) -> str:
        """Return the job's token for the agent's one, asked for as google-auth asks (google/oauth2/sts.py). Messages
        contain no token."""
        form = {
            "grant_type": _GRANT, "subject_token_type": _ACCESS, "requested_token_type": _ACCESS,
            "subject_token": source, "options": self._options,
        }  # fmt: skip
        failed = "the agent's token cannot be limited to the job"
        try:
            answer = requests.post(self._url, data=form, timeout=_TIME)
        except requests.RequestException as error:
            raise CloudError(f"{failed}: {type(error).__name__}", Trouble.TRANSIENT, _WAYS) from None
        try:
            content = answer.json()
        except ValueError:
            content = {}
        content = content if isinstance(content, dict) else {}
        token = content.get("access_token")
        if answer.status_code == 200 and isinstance(token, str) and token:
            return token
        passing = answer.status_code >= 500 or answer.status_code == 429 or answer.status_code == 200
        kind = Trouble.TRANSIENT if passing else Trouble.CREDENTIALS
        raise CloudError(f"{failed}: {_words(content) or answer.status_code}", kind, _WAYS)


def _words(content: dict[str, Any]) -> str:
    """Return a refusal's words: those of OAuth, or Google's own where the service is off."""
    error = content.get("error")
    if isinstance(error, dict):
        return str(error.get("message") or error.get("status") or "")
    return ": ".join(str(part) for part in (error, content.get("error_description")) if part)


def _text(body: str) -> JobAnswer:
    return JobAnswer(200, body, "application/text", FLAVOR)


def _json(content: dict[str, Any]) -> JobAnswer:
    return JobAnswer(200, json.dumps(content), "application/json", FLAVOR)
