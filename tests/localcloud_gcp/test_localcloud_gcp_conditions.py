"""Conditions of grants and the permissions of calls, evaluated without a cloud."""

from datetime import UTC, datetime
from typing import Any

import pytest
from everspot_local.gcp.iam.conditions import BadExpression, check_expression, is_true
from everspot_local.gcp.iam.method_table import PERMISSIONS
from everspot_local.gcp.iam.permissions import KNOWN
from gcp_worker import ON_INSTANCES


def test_every_permission_that_a_call_needs_can_be_granted() -> None:
    needed = {permission for permissions in PERMISSIONS.values() for permission in permissions}
    assert needed - KNOWN == set()


def test_every_method_that_is_served_says_what_it_needs(kit: Any) -> None:
    served = {method for service in kit.cloud.provider.services for method in service.routes}
    launches = {"compute.instances.insert", "compute.instances.bulkInsert", "compute.regionInstances.bulkInsert"}
    assert served - set(PERMISSIONS) - launches == set()


VALUES = {
    "resource.name": "projects/p/zones/europe-west4-a/instances/everspot-7",
    "resource.service": "compute.googleapis.com",
    "resource.type": "compute.googleapis.com/Instance",
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (ON_INSTANCES, True),
        ('resource.name.endsWith("-8") || resource.type == "compute.googleapis.com/Instance"', True),
        ('!(resource.service in ["compute.googleapis.com", "storage.googleapis.com"])', False),
        ("resource.name.extract('zones/{zone}/') == 'europe-west4-a'", True),
        ("resource.name.extract('buckets/{name}') != ''", False),
        ('request.time < timestamp("2027-01-01T00:00:00Z")', False),  # this request has no time
        ('request.time < timestamp("2027-01-01T00:00:00Z") || resource.name.startsWith("projects/p/")', True),
        ('request.time < timestamp("2027-01-01T00:00:00Z") && resource.name == "x"', False),
        ("resource.name", False),
        ('resource.name in "everspot"', False),
        ("resource.name < 3", False),
    ],
)
def test_a_condition_is_evaluated(expression: str, expected: bool) -> None:
    assert is_true(expression, VALUES) is expected


def test_a_grant_can_end_by_itself() -> None:
    until = 'request.time < timestamp("2027-01-01T00:00:00Z")'
    assert is_true(until, {**VALUES, "request.time": datetime(2026, 12, 31, 23, tzinfo=UTC)})
    assert not is_true(until, {**VALUES, "request.time": datetime(2027, 1, 1, tzinfo=UTC)})
    without_zone = until.replace("Z", "")
    assert not is_true(without_zone, {**VALUES, "request.time": datetime(2026, 12, 31, tzinfo=UTC)})


@pytest.mark.parametrize(
    "expression",
    ["", "resource.labels", "resource.name.matches('a')", "resource.name ==", "a && b", "(true",
     "api.getAttribute('a', '') == 'b'", "true true", "1 + 1",
     "resource.matchTag('a', 'b')", " && ".join(["true"] * 14)],
)  # fmt: skip
def test_an_expression_that_is_not_known_is_refused(expression: str) -> None:
    with pytest.raises(BadExpression):
        check_expression(expression)
