"""Tokens for service accounts by others, as the IAM Service Account Credentials API gives them."""

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


def test_a_token_for_another_account_is_a_new_one_that_lasts_as_long_as_was_asked(account: Any) -> None:
    path = f"/iamcredentials/v1/projects/-/serviceAccounts/{AGENT}:generateAccessToken"
    tokens = set()
    for asked, seconds in ((None, 3600), ("600s", 600), ("3600s", 3600)):
        began = datetime.now(UTC)
        given = account.call("POST", path, {"scope": ["cloud-platform"], "lifetime": asked}).body
        tokens.add(given["accessToken"])
        expires = datetime.fromisoformat(given["expireTime"])
        assert began - SECOND <= expires - timedelta(seconds=seconds) <= datetime.now(UTC)
    assert len(tokens) == 3


def test_a_token_that_google_does_not_make_is_refused_with_all_that_is_wrong(account: Any) -> None:
    path = "/iamcredentials/v1/projects/{}/serviceAccounts/{}:generateAccessToken"
    told = account.call("POST", path.format("everspot-local", AGENT), {"lifetime": "3601s"})
    assert told.status == 400
    assert all(f"{name}: " in told.message for name in ("name", "scope", "lifetime")), told.message
    for lifetime in ("0s", "-5s", "1h", "600"):
        told = account.call("POST", path.format("-", AGENT), {"scope": ["cloud-platform"], "lifetime": lifetime})
        assert (told.status, f"lifetime: {lifetime} has to be" in told.message) == (400, True)
    asked = {"scope": ["cloud-platform"], "delegates": [f"projects/-/serviceAccounts/{AGENT}"]}
    assert account.call("POST", path.format("-", AGENT), asked).status == 501
