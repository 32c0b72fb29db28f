"""Permissions of deployers: every action exists, previews only read, and the document lists the same actions."""

from pathlib import Path

import botocore.session
import pytest
from everspot_clouds.aws import deployers
from everspot_clouds.gcp import deployers as google
from everspot_local.gcp.iam.permissions import KNOWN

SECURITY = Path(__file__).resolve().parents[2] / "docs/reference/security.md"


def test_the_document_prints_the_tables() -> None:
    _, _, tail = SECURITY.read_text().partition("<!-- deployers -->\n")
    printed, _, _ = tail.partition("<!-- /deployers -->\n")
    assert printed == deployers.table()


def test_a_preview_only_reads() -> None:
    assert {
        action for action in deployers.PREVIEW if not action.split(":")[1].startswith(("Describe", "Get", "List"))
    } == set()


@pytest.mark.parametrize(
    "service", ["autoscaling", "ec2", "events", "iam", "kms", "service-quotas", "sqs", "ssm", "sts"]
)
def test_every_action_is_a_call_that_the_service_has(service: str) -> None:
    # PassRole is the one permission that is no call.
    operations = set(botocore.session.get_session().get_service_model(service).operation_names) | {"PassRole"}
    prefix = f"{service.replace('-', '')}:"  # IAM writes service-quotas without the hyphen
    listed = {a.split(":")[1] for a in deployers.PREVIEW | deployers.DEPLOY | deployers.ACCOUNT if a.startswith(prefix)}
    assert listed
    assert listed - operations == set()


def test_the_document_prints_the_tables_of_google_cloud() -> None:
    _, _, tail = SECURITY.read_text().partition("<!-- deployers on google cloud -->\n")
    printed, _, _ = tail.partition("<!-- /deployers on google cloud -->\n")
    assert printed == google.table()


def test_a_preview_on_google_cloud_only_reads() -> None:
    assert {
        permission for permission in google.PREVIEW if not permission.rpartition(".")[2].startswith(("get", "list"))
    } == set()


def test_every_permission_on_google_cloud_is_one_that_iam_has() -> None:
    reasoned = {
        permission for names in google.UNSEEN for permission in names.split(", ") if not permission.endswith("*")
    }
    assert (google.PREVIEW | google.DEPLOY | google.ACCOUNT | reasoned) - KNOWN == set()
