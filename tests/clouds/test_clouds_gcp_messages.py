"""Entries of the audit log, as a logging sink sends them to Pub/Sub."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from everspot_clouds.base import MessageKind
from everspot_clouds.gcp.messages import UnreadableEntry, parse
from everspot_clouds.gcp.rules import LOG_FILTER, LOG_METHODS

AT = datetime(2023, 9, 16, 10, 42, 31, 325309, tzinfo=UTC)
NOTICE = timedelta(seconds=120)


def entry(method: str, **changes: Any) -> dict[str, Any]:
    """An entry as Cloud Logging writes it for a preemption: recorded in a public repository's test of its reader."""
    return {
        "protoPayload": {
            "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
            "status": {"message": "Instance was preempted."},
            "authenticationInfo": {"principalEmail": "system@google.com"},
            "serviceName": "compute.googleapis.com",
            "methodName": method,
            "resourceName": "projects/mock-project/zones/europe-west1-c/instances/mock-instance-spot-3706-nr65",
            "request": {"@type": f"type.googleapis.com/{method}"},
        },
        "insertId": "qnwer3e38dfz",
        "resource": {
            "type": "gce_instance",
            "labels": {"instance_id": "1844488190001", "project_id": "mock-project", "zone": "europe-west1-c"},
        },
        "timestamp": "2023-09-16T10:42:31.325309Z",
        "severity": "INFO",
        "logName": "projects/mock-project/logs/cloudaudit.googleapis.com%2Fsystem_event",
        "operation": {"id": "systemevent-1694860946116", "producer": method, "first": True, "last": True},
        "receiveTimestamp": "2023-09-16T10:42:31.782066320Z",
        **changes,
    }


def sent(document: Any) -> str:
    return base64.b64encode(json.dumps(document).encode()).decode()


def test_a_preemption_ends_after_the_notice_that_was_asked_for_and_a_part_of_the_guests_own_time() -> None:
    message = parse(sent(entry("compute.instances.preempted")), "h", NOTICE)
    assert (message.kind, message.instance_id, message.at) == (MessageKind.WARNING, "1844488190001", AT)
    assert message.deadline == AT + timedelta(seconds=145)
    assert parse(sent(entry("compute.instances.preempted")), "h", timedelta(0)).deadline == AT + timedelta(seconds=25)


FIRST, LAST = {"operation": {"id": "o", "first": True}}, {"operation": {"id": "o", "last": True}}
DENIED = {"protoPayload": {"methodName": "v1.compute.instances.delete", "status": {"code": 7, "message": "denied"}}}


@pytest.mark.parametrize(
    ("method", "changes", "kind"),
    [
        ("v1.compute.instances.delete", FIRST, MessageKind.ENDING),
        ("v1.compute.instances.delete", LAST, MessageKind.ENDED),
        ("beta.compute.instances.delete", LAST, MessageKind.ENDED),
        ("v1.compute.instances.stop", FIRST, MessageKind.ENDING),
        ("v1.compute.instances.delete", DENIED, MessageKind.IGNORED),
        ("compute.instances.hostError", {}, MessageKind.ENDED),
        ("compute.instances.guestTerminate", {}, MessageKind.ENDED),
        ("compute.instances.terminateOnHostMaintenance", {}, MessageKind.ENDED),
        ("compute.instances.baremetalCaretakerPreempted", {}, MessageKind.ENDED),
        ("compute.instances.stoppedDueToPdDoubleServe", {}, MessageKind.ENDED),
        ("compute.instances.localSsdRecoveryFailedError", {}, MessageKind.ENDED),
        ("compute.instances.localSsdRecoveryAttempting", {}, MessageKind.IGNORED),
        ("compute.instances.repair.recreateInstance", {}, MessageKind.ENDING),
        ("compute.instances.migrateOnHostMaintenance", {}, MessageKind.IGNORED),
        ("v1.compute.disks.delete", LAST, MessageKind.IGNORED),
    ],
)
def test_every_method_means_something_or_is_left_out(method: str, changes: dict[str, Any], kind: MessageKind) -> None:
    assert parse(sent(entry(method, **changes)), "h", NOTICE).kind is kind


def test_whatever_the_sink_lets_through_is_understood() -> None:
    kinds = {method: parse(sent(entry(method)), "h", NOTICE).kind for method in LOG_METHODS}
    assert [method for method, kind in kinds.items() if kind is MessageKind.IGNORED] == []
    assert all(f'"{method}"' in LOG_FILTER for method in LOG_METHODS)


@pytest.mark.parametrize(
    "data",
    [
        "no base64!",
        base64.b64encode(b"no json").decode(),
        sent([1, 2]),
        sent(entry("compute.instances.preempted", timestamp="yesterday")),
        sent(entry("compute.instances.preempted", resource={"labels": {}})),
        sent(entry("compute.instances.preempted", resource={"labels": {"instance_id": "a-name"}})),
    ],
)
def test_what_is_no_entry_is_refused(data: str) -> None:
    with pytest.raises(UnreadableEntry):
        parse(data, "h", NOTICE)
