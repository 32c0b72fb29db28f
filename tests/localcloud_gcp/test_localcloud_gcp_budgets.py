"""Budgets of Cloud Billing, as the provider creates, reads and changes them."""

from typing import Any

import pytest
from everspot_local.gcp.iam.needs import Needs

ACCOUNT = "billingAccounts/000000-000000-000000"
PATH = f"/billingbudgets/v1/{ACCOUNT}/budgets"
BUDGET: Any = {
    "displayName": "everspot: vision",
    "budgetFilter": {"projects": ["projects/everspot-local"], "labels": {"team": ["vision"]}},
    "amount": {"specifiedAmount": {"units": "900", "nanos": 500000000}},
    "thresholdRules": [{"thresholdPercent": 0.8}, {"thresholdPercent": 1.0, "spendBasis": "FORECASTED_SPEND"}],
}


@pytest.fixture
def on(kit: Any) -> Any:
    """A project in which the API is switched on."""
    kit.call("POST", "/serviceusage/v1/projects/everspot-local/services/billingbudgets.googleapis.com:enable", {})
    return kit


def test_nothing_answers_until_the_api_is_switched_on(kit: Any) -> None:
    refused = kit.call("POST", PATH, BUDGET)
    assert (refused.status, refused.body["error"]["status"]) == (403, "PERMISSION_DENIED")
    assert refused.body["error"]["details"][0]["reason"] == "SERVICE_DISABLED"


def test_a_budget_is_made_changed_and_deleted(on: Any) -> None:
    created = on.call("POST", PATH, BUDGET).body
    assert created["budgetFilter"] == {
        "projects": ["projects/100000000001"], "labels": {"team": ["vision"]}, "calendarPeriod": "MONTH",
        "creditTypesTreatment": "INCLUDE_ALL_CREDITS",
    }  # fmt: skip
    assert created["amount"]["specifiedAmount"] == {"currencyCode": "USD", "units": "900", "nanos": 500000000}
    assert [rule["spendBasis"] for rule in created["thresholdRules"]] == ["CURRENT_SPEND", "FORECASTED_SPEND"]
    path = f"/billingbudgets/v1/{created['name']}"
    assert on.get(path) == created
    other = {"amount": {"specifiedAmount": {"units": "5"}}}
    changed = on.call("PATCH", f"{path}?updateMask=amount.specifiedAmount.units", other).body
    assert (changed["amount"]["specifiedAmount"]["units"], changed["displayName"]) == ("5", BUDGET["displayName"])
    stale = on.call("PATCH", f"{path}?updateMask=displayName", {"displayName": "x", "etag": created["etag"]})
    assert (stale.status, stale.body["error"]["status"]) == (409, "ABORTED")
    assert [budget["name"] for budget in on.get(PATH)["budgets"]] == [created["name"]]
    assert on.call("DELETE", path).body == {}
    assert on.call("GET", path).status == 404


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"amount": {}}, "a specified amount or that of the last period"),
        ({"amount": {"specifiedAmount": {"units": "1", "currencyCode": "EUR"}}}, "currency"),
        ({"displayName": "n" * 61}, "60 characters"),
        ({"budgetFilter": {"labels": {"team": ["a", "b"]}}}, "one label with one value"),
        ({"notificationsRule": {"monitoringNotificationChannels": ["c"] * 6}}, "at most 5"),
        ({"thresholdRules": [{"thresholdPercent": -1}]}, "below 0"),
    ],
)
def test_a_budget_that_google_does_not_take(on: Any, changes: Any, words: str) -> None:
    refused = on.call("POST", PATH, BUDGET | changes)
    assert (refused.status, refused.body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert words in refused.message


def test_another_billing_account_is_nobodys_to_see(on: Any) -> None:
    assert on.call("POST", PATH.replace("000000-", "111111-", 1), BUDGET).status == 403


@pytest.mark.parametrize(
    ("verb", "names"), [("create", {"parent": ACCOUNT}), ("get", {"name": f"{ACCOUNT}/budgets/1"})]
)
def test_the_billing_accounts_own_policy_decides_and_never_the_projects(verb: str, names: Any) -> None:
    needs = Needs("everspot-local", list, lambda path: None, lambda bucket, name: False)
    (need,) = needs(f"billingbudgets.billingAccounts.budgets.{verb}", names, {})
    assert (need.permission, need.resource) == (f"billing.budgets.{verb}", ACCOUNT)
