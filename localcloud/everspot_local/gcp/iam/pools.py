"""Stands in for workload identity pools and their providers: which identities of another cloud are accepted here.

There are providers for AWS, and for issuers of OpenID Connect, whose tokens nobody verifies here: they are refused. A
name that was deleted is taken for thirty days. Attributes and conditions are written in the same part of the expression
language as conditions of bindings, of other values; what it does not know is refused when a provider is made. Source:
IAM API, `projects.locations.workloadIdentityPools` (discovery document, and its schemas' limits).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from everspot_local.gcp.iam.conditions import BadExpression, Node, compiled
from everspot_local.gcp.refusals import absent, bad, exists_already, unready
from everspot_local.gcp.router import Handler, Request
from everspot_local.market.clock import stamp

Document = dict[str, Any]
KEPT = timedelta(days=30)
SUBJECT = "google.subject"
MAPPED = ("assertion.arn", "assertion.account", "assertion.userid")
"""What AWS's answer on a caller has (IAM documentation, "Configure Workload Identity Federation with AWS")."""
_ID = re.compile(r"[a-z0-9-]{4,32}")
_ACCOUNT = re.compile(r"\d{12}")
_KEY = re.compile(r"google\.(subject|groups)|attribute\.[a-z0-9_]{1,90}")
_POOLS = "iam.projects.locations.workloadIdentityPools"
_AUDIENCES_AT_MOST, _AUDIENCE_AT_MOST = 10, 256
_LIMITS = {"displayName": 32, "description": 256, "attributeCondition": 4096}
_COMMON = {"displayName", "description", "disabled"}
_CHANGED = {"attributeMapping", "attributeCondition", "aws", "oidc", *_COMMON}
GITHUB = "https://token.actions.githubusercontent.com"
CLAIMS = tuple(
    f"assertion.{name}"
    for name in (
        *("actor", "actor_id", "aud", "base_ref", "environment", "event_name", "head_ref", "iss", "job_workflow_ref"),
        *("ref", "ref_type", "repository", "repository_id", "repository_owner", "repository_owner_id"),
        *("repository_visibility", "run_id", "sha", "sub", "workflow"),
    )
)
"""What GitHub's tokens have (GitHub documentation, "OpenID Connect reference")."""


@dataclass
class PoolEntry:
    """A pool or a provider. `deleted`: when it was deleted, or None."""

    name: str
    fields: Document
    deleted: datetime | None = None
    mapping: Mapping[str, Node] = field(default_factory=dict)
    condition: Node | None = None

    @property
    def usable(self) -> bool:
        """Return whether its proofs are accepted."""
        return self.deleted is None and not self.fields.get("disabled")


class IdentityPools:
    """The pools of a project, by their names with its number. Every method raises `ApiError` in IAM's words."""

    def __init__(self, now: Callable[[], datetime], project: str, number: str) -> None:
        self._now, self._project, self._number = now, project, number
        self._entries: dict[str, PoolEntry] = {}
        self._operations: dict[str, Document] = {}

    def routes(self) -> Mapping[str, Handler]:
        """Return handlers by method id."""
        handlers: dict[str, Handler] = {}
        for kind, create, change in (
            (_POOLS, self._create_pool, _COMMON),
            (f"{_POOLS}.providers", self._create_provider, _CHANGED),
        ):
            handlers |= {
                f"{kind}.create": create,
                f"{kind}.get": lambda r: self._document(self._find(r.params["name"])),
                f"{kind}.list": self._list,
                f"{kind}.patch": partial(self._patch, change),
                f"{kind}.delete": self._delete,
                f"{kind}.undelete": self._undelete,
                f"{kind}.operations.get": lambda r: (
                    self._operations.get(r.params["name"]) or _nothing(r.params["name"])
                ),
            }
        # The provider reads them for each pool; pools that accept proofs have none.
        handlers[f"{_POOLS}.listAttestationRules"] = self._no_rules
        return handlers

    def usable(self, provider: str) -> PoolEntry | None:
        """Return the provider of this name if its proofs are accepted."""
        pool = self._entries.get(provider.partition("/providers/")[0])
        entry = self._entries.get(provider)
        return entry if entry is not None and pool is not None and pool.usable and entry.usable else None

    def _create_pool(self, request: Request) -> Document:
        return self._create(request, "workloadIdentityPools", request.params.get("workloadIdentityPoolId"), _COMMON)

    def _create_provider(self, request: Request) -> Document:
        pool = self._find(request.params["parent"])
        if pool.deleted is not None:
            raise unready(f"{pool.name} is deleted.")
        return self._create(request, "providers", request.params.get("workloadIdentityPoolProviderId"), _CHANGED)

    def _create(self, request: Request, kind: str, own: str | None, fields: set[str]) -> Document:
        if own is None or not _ID.fullmatch(own) or own.startswith("gcp-"):
            raise bad(f"{own!r} is no id: it must be 4-32 characters [a-z0-9-], and not begin with gcp-.")
        name = f"{self._numbered(request.params['parent'])}/{kind}/{own}"
        existing = self._entries.get(name)
        if existing is not None and (existing.deleted is None or self._now() < existing.deleted + KEPT):
            raise exists_already("Requested entity already exists")
        entry_fields = {key: value for key, value in request.body.items() if key in fields}
        entry = PoolEntry(name, entry_fields)
        if kind == "providers":
            _read_provider(entry)
        _check_words(entry_fields)
        self._entries[name] = entry
        return self._operation(entry)

    def _patch(self, fields: set[str], request: Request) -> Document:
        current = self._living(request.params["name"])
        masked = {name.strip().split(".")[0] for name in str(request.params.get("updateMask") or "").split(",")}
        if unknown := sorted(masked - fields):
            raise bad(f"The update mask names fields that cannot be changed: {', '.join(unknown)}.")
        changed = PoolEntry(current.name, {**current.fields, **{name: request.body.get(name) for name in masked}})
        if "/providers/" in current.name:
            _read_provider(changed)
        _check_words(changed.fields)
        self._entries[current.name] = changed
        return self._operation(changed)

    def _delete(self, request: Request) -> Document:
        entry = self._living(request.params["name"])
        entry.deleted = self._now()
        return self._operation(entry)

    def _undelete(self, request: Request) -> Document:
        entry = self._find(request.params["name"])
        if entry.deleted is None:
            raise unready(f"{entry.name} is not deleted.")
        entry.deleted = None
        return self._operation(entry)

    def _list(self, request: Request) -> Document:
        parent, providers = self._numbered(request.params["parent"]), request.method.startswith(f"{_POOLS}.providers")
        field_name = "workloadIdentityPoolProviders" if providers else "workloadIdentityPools"
        begins = f"{parent}/{'providers' if providers else 'workloadIdentityPools'}/"
        own = [
            each for name, each in self._entries.items() if name.startswith(begins) and "/" not in name[len(begins) :]
        ]
        shown = [each for each in own if each.deleted is None or request.params.get("showDeleted")]
        return {field_name: [self._document(each) for each in shown]}

    def _no_rules(self, request: Request) -> Document:
        self._find(request.params["resource"])
        return {}

    def _find(self, name: str) -> PoolEntry:
        entry = self._entries.get(self._numbered(name))
        if entry is None or (entry.deleted is not None and self._now() >= entry.deleted + KEPT):
            raise absent("Requested entity was not found.")
        return entry

    def _living(self, name: str) -> PoolEntry:
        entry = self._find(name)
        if entry.deleted is not None:
            raise unready(f"{entry.name} is deleted.")
        return entry

    def _document(self, entry: PoolEntry) -> Document:
        expires = {} if entry.deleted is None else {"expireTime": stamp(entry.deleted + KEPT)}
        return {
            "name": entry.name,
            "state": "ACTIVE" if entry.deleted is None else "DELETED",
            **entry.fields,
            **expires,
        }

    def _operation(self, entry: PoolEntry) -> Document:
        """Return a change as an operation: in progress in its answer, and done when it is read."""
        name = f"{entry.name}/operations/{len(self._operations) + 1}"
        self._operations[name] = {"name": name, "done": True, "response": self._document(entry)}
        return {"name": name}

    def _numbered(self, name: str) -> str:
        return name.replace(f"projects/{self._project}/", f"projects/{self._number}/", 1)


def _read_provider(provider: PoolEntry) -> None:
    fields, oidc = provider.fields, provider.fields.get("oidc")
    if bool(fields.get("aws")) == bool(oidc):
        raise bad("A provider is one of aws and oidc. Others are not known here.")
    claims, usual = (MAPPED, {SUBJECT: "assertion.arn"}) if not oidc else (CLAIMS, {})
    _check_issuer(fields) if oidc else _check_account(fields)
    mapping = fields.get("attributeMapping") or usual
    if SUBJECT not in mapping:
        raise bad(f"attributeMapping: a mapping of {SUBJECT} is required.")
    if unknown := sorted(key for key in mapping if not _KEY.fullmatch(key)):
        raise bad(f"attributeMapping: {', '.join(unknown)} is no attribute.")
    try:
        provider.mapping = {key: compiled(text, claims) for key, text in mapping.items()}
        condition = fields.get("attributeCondition")
        provider.condition = compiled(condition, (*claims, *mapping)) if condition else None
    except BadExpression as error:
        raise bad(f"An expression cannot be evaluated: {error}.") from None


def _check_account(fields: Document) -> None:
    account = fields["aws"].get("accountId", "")
    if not _ACCOUNT.fullmatch(account):
        raise bad(f"{account!r} is no AWS account id: twelve digits.")


def _check_issuer(fields: Document) -> None:
    """Refuse a public issuer of tokens without a condition that limits them (IAM documentation, "Configure Workload
    Identity Federation with deployment pipelines")."""
    issuer, audiences = str(fields["oidc"].get("issuerUri", "")), fields["oidc"].get("allowedAudiences") or []
    if not issuer.startswith("https://"):
        raise bad("oidc.issuerUri: it must be an https URL.")
    if len(audiences) > _AUDIENCES_AT_MOST or any(len(each) > _AUDIENCE_AT_MOST for each in audiences):
        raise bad(f"oidc.allowedAudiences: at most {_AUDIENCES_AT_MOST} of {_AUDIENCE_AT_MOST} characters.")
    if issuer == GITHUB and "assertion." not in str(fields.get("attributeCondition") or ""):
        raise bad("The attribute condition must reference one of the provider's claims.")


def _check_words(fields: Document) -> None:
    for name, most in _LIMITS.items():
        if len(str(fields.get(name) or "")) > most:
            raise bad(f"Invalid {name}: it must be at most {most} characters.")


def _nothing(name: str) -> Document:
    raise absent(f"Operation {name} was not found.")
