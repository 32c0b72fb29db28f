"""Tokens for service accounts that other callers request (IAM Service Account Credentials API)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from gcp_worker import AGENT, Worker

SECOND = timedelta(seconds=1)  # the least that a stamp shows


@pytest.fixture
def account(kit: Any) -> Any:
    """The kit, once the whole cloud has heard of a service account."""
    with kit.still() as later:
        Worker(kit)
        later(10)
        yield kit


def test_a_token_for_another_account_is_new_and_lasts_as_long_as_requested(account: Any) -> None:
    path = f"/iamcredentials/v1/projects/-/serviceAccounts/{AGENT}:generateAccessToken"
    tokens = set()
    for lifetime, seconds in ((None, 3600), ("600s", 600), ("3600s", 3600)):
        began = datetime.now(UTC)
        token = account.call("POST", path, {"scope": ["cloud-platform"], "lifetime": lifetime}).body
        tokens.add(token["accessToken"])
        expires = datetime.fromisoformat(token["expireTime"])
        assert began - SECOND <= expires - timedelta(seconds=seconds) <= datetime.now(UTC)
    assert len(tokens) == 3


def test_a_token_that_google_does_not_make_is_refused_with_all_that_is_wrong(account: Any) -> None:
    path = "/iamcredentials/v1/projects/{}/serviceAccounts/{}:generateAccessToken"
    refused = account.call("POST", path.format("everspot-local", AGENT), {"lifetime": "3601s"})
    assert refused.status == 400
    assert all(f"{name}: " in refused.message for name in ("name", "scope", "lifetime")), refused.message
    for lifetime in ("0s", "-5s", "1h", "600"):
        refused = account.call("POST", path.format("-", AGENT), {"scope": ["cloud-platform"], "lifetime": lifetime})
        assert (refused.status, f"lifetime: {lifetime} has to be" in refused.message) == (400, True)
    delegated = {"scope": ["cloud-platform"], "delegates": [f"projects/-/serviceAccounts/{AGENT}"]}
    assert account.call("POST", path.format("-", AGENT), delegated).status == 501
