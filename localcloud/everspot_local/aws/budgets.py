"""Stands in for what moto's AWS Budgets lacks: whom a notification tells, and tags. It adds up no costs."""

import json
from typing import Any

from moto.budgets.exceptions import NotFoundException
from moto.budgets.responses import BudgetsResponse

KEY = ("NotificationType", "ComparisonOperator", "Threshold")
"""What a notification is known by (AWS Budgets API Reference, `Notification`)."""

_create_budget = BudgetsResponse.create_budget


def describe_subscribers_for_notification(self: BudgetsResponse) -> str:
    """Return the subscribers of one notification of a budget.

    Raises:
        NotFoundException: if there is no such budget, or it has no such notification.
    """
    account, name = self._get_param("AccountId"), self._get_param("BudgetName")
    requested_details: dict[str, Any] = self._get_param("Notification")
    budget = self.backend.budgets[account].get(name)
    for notification in budget.notifications if budget else ():
        if all(notification.details.get(key) == requested_details.get(key) for key in KEY):
            return json.dumps({"Subscribers": notification.subscribers})
    raise NotFoundException(f"Unable to get subscribers - the notification does not exist: {name}.")


def create_budget(self: BudgetsResponse) -> str:
    """Create a budget as moto does, and keep its tags."""
    answer: str = _create_budget(self)
    _find(self, self._get_param("Budget")["BudgetName"]).resource_tags = self._get_param("ResourceTags") or []
    return answer


def list_tags_for_resource(self: BudgetsResponse) -> str:
    """Return the tags of a budget, by its ARN.

    Raises:
        NotFoundException: if there is no such budget.
    """
    name = str(self._get_param("ResourceARN")).partition(":budget/")[2]
    return json.dumps({"ResourceTags": _find(self, name).resource_tags})


def _find(handler: BudgetsResponse, name: str) -> Any:
    budget = next((owned[name] for owned in handler.backend.budgets.values() if name in owned), None)
    if budget is None:
        raise NotFoundException(f"Unable to get budget: {name} - the budget doesn't exist.")
    return budget
