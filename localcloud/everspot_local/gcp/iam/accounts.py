"""Stands in for service accounts: created, visible after a delay, disabled, deleted and restored.

It creates no keys: Everspot uses none. Sources (IAM documentation): "Create service accounts" (ids; a new account takes
a while to be found everywhere), "Delete and undelete service accounts" (30 days), "Quotas and limits" (100 in a
project); and terraform-provider-google, resource_google_service_account.go, which waits ten seconds for that reason.
"""

import base64
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from everspot_local.gcp.refusals import absent, bad, exhausted, exists_already, unready

AT_MOST = 100
SEEN_AFTER = timedelta(seconds=10)
"""From creation until every part of the cloud finds an account."""
KEPT = timedelta(days=30)
"""From deletion until an account cannot be restored."""
NAME_BYTES, DESCRIPTION_BYTES = 100, 256
_ID = re.compile(r"[a-z]([-a-z0-9]{4,28}[a-z0-9])")
_LOGGING, _PUBSUB = (f"service-{{n}}@gcp-sa-{name}.iam.gserviceaccount.com" for name in ("logging", "pubsub"))
_LATE_AGENTS = (_LOGGING, _PUBSUB)
"""Those that there are only once their service is used: "Google Cloud creates the service agent at some point after you
activate and use the API" ("Service agents"), and none can be granted a role before ("Create and grant roles to service
agents"); as met with topics' policies: https://github.com/hashicorp/terraform-provider-google/issues/10114."""
_AGENTS = (
    "service-{n}@gcp-sa-monitoring-notification.iam.gserviceaccount.com",
    "service-{n}@gcp-sa-secretmanager.iam.gserviceaccount.com",
    "service-{n}@gs-project-accounts.iam.gserviceaccount.com",
    "service-{n}@compute-system.iam.gserviceaccount.com", "{n}@cloudservices.gserviceaccount.com",
    "{n}-compute@developer.gserviceaccount.com", "cloud-logs@system.gserviceaccount.com",
)  # fmt: skip
"""Accounts that Google makes ("Service agents")."""


@dataclass
class ServiceAccount:
    """One service account. `deleted`: when it was deleted, or None."""

    email: str
    unique_id: str
    created: datetime
    display_name: str = ""
    description: str = ""
    disabled: bool = False
    deleted: datetime | None = None
    revision: int = field(default=1)


class Accounts:
    """The service accounts of a project. Every method raises `ApiError` in IAM's words.

    Args:
        now: market time.
        project: its id.
        number: its number.
        strict: whether a new account is found late.
    """

    def __init__(self, now: Callable[[], datetime], project: str, number: str, *, strict: bool) -> None:
        self._now, self._project = now, project
        self._late = SEEN_AFTER if strict else timedelta()
        self._accounts: list[ServiceAccount] = []
        self._agents = {agent.format(n=number) for agent in _AGENTS}
        self._later = {agent.format(n=number) for agent in _LATE_AGENTS}
        self._count = 0

    def create(self, account_id: str, body: Mapping[str, Any]) -> ServiceAccount:
        """Create an account.

        Raises:
            ApiError: for a bad id or text, a name that is taken, or one account too many.
        """
        if not _ID.fullmatch(account_id):
            raise bad(f'Invalid service account ID: "{account_id}". It must be 6 to 30'
                           " characters: lower case letters, digits and hyphens, beginning with a letter.")  # fmt: skip
        email = f"{account_id}@{self._project}.iam.gserviceaccount.com"
        if any(account.email == email for account in self._living()):
            raise exists_already(f"Service account {account_id} already exists within project projects/"
                           f"{self._project}.")  # fmt: skip
        if len(self._living()) >= AT_MOST:
            raise exhausted("Maximum number of service accounts on project reached.")
        _check_words(body)
        self._count += 1
        service_account = ServiceAccount(email, str(10**20 + self._count), self._now(), body.get("displayName", ""),
                       body.get("description", ""))  # fmt: skip
        self._accounts.append(service_account)
        return service_account

    def find(self, name: str) -> ServiceAccount:
        """Return an account by its email or unique id.

        Raises:
            ApiError: 404, also for an account that is too new to be found.
        """
        for account in self._living():
            if name in (account.email, account.unique_id) and self._is_visible(account):
                return account
        raise absent(f"Unknown service account: {name}" if "@" not in name else "Service account"
                       f" projects/{self._project}/serviceAccounts/{name} does not exist.")  # fmt: skip

    def exists(self, email: str) -> bool:
        """Return whether the rest of the cloud finds an account with this email, Google's own included."""
        return email in self._agents or any(a.email == email and self._is_visible(a) for a in self._living())

    def service_used(self, agent: str) -> None:
        """Create the agent of a Google service that is used for the first time. `agent`: its email."""
        if agent in self._later:
            self._agents.add(agent)

    def unique_id(self, email: str) -> str:
        """Return an account's number, also of Google's own accounts; empty if there is no such account."""
        own = next((account.unique_id for account in self._living() if account.email == email), "")
        return own or (str(10**20 + zlib.crc32(email.encode())) if email in self._agents else "")

    def usable(self, email: str) -> bool:
        """Return whether calls may be made in the account's name."""
        return email in self._agents or any(a.email == email and not a.disabled for a in self._living())

    def all(self) -> list[ServiceAccount]:
        """Return the accounts that the API shows: all that are not deleted and old enough to be found."""
        return [account for account in self._living() if self._is_visible(account)]

    def change(self, account: ServiceAccount, body: Mapping[str, Any], fields: set[str]) -> ServiceAccount:
        """Change an account's display name, its description, or both, as `fields` names them. What the body does not
        say becomes empty.

        Raises:
            ApiError: for a text that is too long.
        """
        _check_words(body)
        if "displayName" in fields:
            account.display_name = body.get("displayName", "")
        if "description" in fields:
            account.description = body.get("description", "")
        account.revision += 1
        return account

    def delete(self, account: ServiceAccount) -> None:
        """Delete an account; its name is free immediately."""
        account.deleted = self._now()

    def undelete(self, unique_id: str) -> ServiceAccount:
        """Restore an account.

        Raises:
            ApiError: if no deleted one has this id any more, or another has its name.
        """
        for account in self._accounts:
            if account.unique_id == unique_id and account.deleted and self._now() < account.deleted + KEPT:
                if any(other.email == account.email for other in self._living()):
                    break
                account.deleted = None
                return account
        raise unready(f"Service account {unique_id} cannot be undeleted.")

    def document(self, account: ServiceAccount) -> dict[str, Any]:
        """Return the account as the API shows it."""
        document = {
            "name": f"projects/{self._project}/serviceAccounts/{account.email}",
            "projectId": self._project,
            "uniqueId": account.unique_id,
            "email": account.email,
            "displayName": account.display_name,
            "description": account.description,
            "oauth2ClientId": account.unique_id,
            "etag": base64.b64encode(f"{account.revision:04d}".encode()).decode(),
            "disabled": account.disabled,
        }
        return {key: value for key, value in document.items() if value}

    def _living(self) -> list[ServiceAccount]:
        return [account for account in self._accounts if account.deleted is None]

    def _is_visible(self, account: ServiceAccount) -> bool:
        return self._now() >= account.created + self._late


def _check_words(body: Mapping[str, Any]) -> None:
    for name, most in (("displayName", NAME_BYTES), ("description", DESCRIPTION_BYTES)):
        if len(str(body.get(name, "")).encode()) > most:
            raise bad(f"Invalid {name}: it must be at most {most} UTF-8 bytes.")
