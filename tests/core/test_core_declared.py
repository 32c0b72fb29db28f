"""A resource of a preview: the parts of its URN, and values that the event log lacks."""

import pytest
from everspot_core.cluster.declared import SECRET, UNKNOWN, DeclaredResource, is_fully_known, secret, unknown

HIDDEN = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": SECRET}


def test_an_urn_says_stack_project_parents_and_name() -> None:
    urn = "urn:pulumi:aws-prod::everspot::everspot:index:Cluster$cloud:x/y:Fleet::everspot::spot"
    resource = DeclaredResource(urn, "cloud:x/y:Fleet", {})
    assert (resource.stack, resource.project, resource.name) == ("aws-prod", "everspot", "everspot::spot")
    assert resource.parent_types == ("everspot:index:Cluster",)


def test_what_is_no_urn_is_refused() -> None:
    with pytest.raises(ValueError, match="'fleet' is no URN"):
        _ = DeclaredResource("fleet", "x", {}).name


@pytest.mark.parametrize(
    ("value", "is_secret", "is_unknown", "whole"),
    [
        ("plain", False, False, True),
        (UNKNOWN, False, True, False),
        (SECRET, True, False, False),
        (HIDDEN, True, False, False),
        ({"a": [1, {"b": UNKNOWN}]}, False, False, False),
        ({"a": [1, HIDDEN]}, False, False, False),
        ({"a": [1, None]}, False, False, True),
        (f"arn:{UNKNOWN}", False, False, True),
    ],
)
def test_markers_are_recognized(value: object, is_secret: bool, is_unknown: bool, whole: bool) -> None:
    assert (secret(value), unknown(value), is_fully_known(value)) == (is_secret, is_unknown, whole)
