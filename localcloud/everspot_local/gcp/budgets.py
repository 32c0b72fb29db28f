"""Emulates Cloud Billing's budgets as documents of the one billing account. It computes no costs and sends no alerts.

Whether a channel exists is not looked at. Sources: billingbudgets.v1.json; Cloud Billing documentation: "Quotas and
limits" (50,000 budgets), "Create, edit, or delete budgets and budget alerts" (one label with one value).
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from everspot_local.gcp.answers import ApiError, not_here
from everspot_local.gcp.billing import ACCOUNT
from everspot_local.gcp.refusals import aborted, absent, bad, exhausted
from everspot_local.gcp.router import Handler, Request

SERVICE = "billingbudgets.googleapis.com"
AT_MOST, NAME_LENGTH, CHANNELS = 50_000, 60, 5
CURRENCY = "USD"
"""Of the billing account; a budget in another one is refused."""
_BUDGETS = "billingbudgets.billingAccounts.budgets"
Document = dict[str, Any]


class Budgets:
    """The budgets of the billing account that pays for a project.

    Args:
        project, number: the project's.
        on: whether a Google service is switched on in the project.
    """

    def __init__(self, project: str, number: str, on: Callable[[str], bool]) -> None:
        self._project, self._number, self._on = project, number, on
        self._documents: dict[str, Document] = {}

    def routes(self) -> Mapping[str, Handler]:
        """Return handlers by method id."""
        return {
            f"{_BUDGETS}.create": self._create,
            f"{_BUDGETS}.delete": self._delete,
            f"{_BUDGETS}.get": lambda r: self._get(r.params["name"]),
            f"{_BUDGETS}.list": self._list,
            f"{_BUDGETS}.patch": self._patch,
        }

    def _create(self, request: Request) -> Document:
        account = request.params["parent"]
        self._enter(account)
        if len(self._documents) >= AT_MOST:
            raise exhausted(f"The billing account has {AT_MOST} budgets.")
        return self._store(request.body, f"{account}/budgets/{secrets.token_hex(16)}")

    def _patch(self, request: Request) -> Document:
        budget = self._get(request.params["name"])
        if request.body.get("etag") not in (None, "", budget["etag"]):
            raise aborted("The etag is not that of the budget.")
        fields = {
            field_path.strip().split(".")[0] for field_path in str(request.params.get("updateMask") or "").split(",")
        } - {""}
        body = {name: value for name, value in request.body.items() if not fields or name in fields}
        return self._store({**budget, **dict.fromkeys(fields), **body}, budget["name"])

    def _delete(self, request: Request) -> Document:
        del self._documents[self._get(request.params["name"])["name"]]
        return {}

    def _list(self, request: Request) -> Document:
        self._enter(request.params["parent"])
        if request.params.get("scope"):
            raise not_here("budgets by their scope")
        return {"budgets": list(self._documents.values())}

    def _get(self, name: str) -> Document:
        self._enter("/".join(name.split("/")[:2]))
        if name not in self._documents:
            raise absent("Requested entity was not found.")
        return self._documents[name]

    def _enter(self, account: str) -> None:
        if not self._on(SERVICE):
            message = f"Cloud Billing Budget API has not been used in project {self._number} before or it is disabled."
            info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "SERVICE_DISABLED",
                    "domain": "googleapis.com",
                    "metadata": {"service": SERVICE, "consumer": f"projects/{self._number}"}}  # fmt: skip
            raise ApiError(403, "forbidden", message, details=[info])
        if account != ACCOUNT:
            raise ApiError(403, "forbidden", "The caller does not have permission")

    def _store(self, body: Document, name: str) -> Document:
        fields = {key: value for key, value in body.items() if value}
        _check(fields)
        amount = fields["amount"]
        if "specifiedAmount" in amount:
            amount = {"specifiedAmount": {**amount["specifiedAmount"], "currencyCode": CURRENCY}}
        rules = [{"spendBasis": "CURRENT_SPEND", **rule} for rule in fields.get("thresholdRules", [])]
        budget = {**fields, "name": name, "etag": secrets.token_hex(8), "amount": amount, "thresholdRules": rules}
        self._documents[name] = {**budget, "budgetFilter": self._filter(fields.get("budgetFilter") or {})}
        return self._documents[name]

    def _filter(self, requested: Document) -> Document:
        """Return a budget's filter with its defaults, and with projects by their numbers."""
        budget_filter = {"creditTypesTreatment": "INCLUDE_ALL_CREDITS", **{k: v for k, v in requested.items() if v}}
        if "customPeriod" not in budget_filter:
            budget_filter.setdefault("calendarPeriod", "MONTH")
        own = {f"projects/{self._project}": f"projects/{self._number}"}
        return {**budget_filter, "projects": [own.get(project, project) for project in requested.get("projects") or []]}


def _check(budget: Document) -> None:
    amount = budget.get("amount") or {}
    if ("specifiedAmount" in amount) == ("lastPeriodAmount" in amount):
        raise bad("Request contains an invalid argument: a budget has a specified amount or that of the last period.")
    if (amount.get("specifiedAmount") or {}).get("currencyCode") not in (None, "", CURRENCY):
        raise bad("Request contains an invalid argument: the currency is not that of the billing account.")
    if len(budget.get("displayName", "")) > NAME_LENGTH:
        raise bad(f"Request contains an invalid argument: display_name has over {NAME_LENGTH} characters.")
    labels = (budget.get("budgetFilter") or {}).get("labels") or {}
    if len(labels) > 1 or any(len(values) != 1 for values in labels.values()):
        raise bad("Request contains an invalid argument: a filter has one label with one value.")
    channels = (budget.get("notificationsRule") or {}).get("monitoringNotificationChannels") or []
    if len(channels) > CHANNELS:
        raise bad(f"Request contains an invalid argument: at most {CHANNELS} notification channels.")
    custom = "customPeriod" in (budget.get("budgetFilter") or {})
    for rule in budget.get("thresholdRules", []):
        if float(rule.get("thresholdPercent") or 0) < 0 or (custom and rule.get("spendBasis") == "FORECASTED_SPEND"):
            raise bad("Request contains an invalid argument: a threshold is below 0, or foresees a custom period.")
