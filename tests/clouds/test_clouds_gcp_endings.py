"""Instances are terminated one by one; a role without the permission terminates none."""

from typing import Any

import pytest
from everspot_clouds.gcp.errors import ApiError, refused
from everspot_clouds.gcp.instances import Whereabouts
from everspot_clouds.gcp.terminations import DENIED_AT_MOST, terminate

NAMES = [str(number) for number in range(8)]
PLACES = {name: Whereabouts(name=f"train-e-{name}", zone="europe-west4-a") for name in NAMES}


class Refusing:
    """An API that refuses to delete some instances with 403, and counts."""

    project = "p"

    def __init__(self, denied: set[str]) -> None:
        self.denied, self.requests = denied, list[str]()

    def call(self, _verb: str, _product: str, path: str) -> None:
        name = path.rpartition("-")[2]
        self.requests.append(name)
        if name in self.denied:
            body = {"error": {"code": 403, "message": "denied", "errors": [{"reason": "forbidden"}]}}
            raise refused(403, body)


def test_a_role_that_may_end_nothing_asks_a_few_times_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    api: Any = Refusing(set(NAMES))
    with pytest.raises(ApiError, match="denied"):
        terminate(api, NAMES, PLACES)
    assert api.requests == NAMES[:DENIED_AT_MOST]
    assert "this role may end no instance: 5 more are not tried" in caplog.text


def test_a_few_that_may_not_be_ended_keep_no_other_alive() -> None:
    api: Any = Refusing(set(NAMES[1:5]))
    with pytest.raises(ApiError, match="denied"):
        terminate(api, NAMES, PLACES)
    assert api.requests == NAMES
