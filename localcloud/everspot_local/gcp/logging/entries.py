"""Stands in for the audit log of Compute Engine: what the cloud writes when an instance comes to an end.

Who calls the API is logged by the book of calls, not here. Sources: "Compute Engine audit logging information" (system
events: preemption and the end from within), "LogEntry" and "AuditLog" in the Logging API reference.
"""

import secrets
from datetime import datetime
from typing import Any

from everspot_local.market.clock import stamp

SYSTEM = "compute.instances."
"""The beginning of the method names of system events, which no caller asked for."""
PREEMPTED = f"{SYSTEM}preempted"
GUEST_TERMINATE = f"{SYSTEM}guestTerminate"
CALLED = {"delete": "v1.compute.instances.delete", "stop": "v1.compute.instances.stop"}
"""Methods that end an instance, by the operation's type."""
_SAID = {
    PREEMPTED: "Instance was preempted.", GUEST_TERMINATE: "Instance terminated by guest OS shutdown.",
}  # fmt: skip


def instance_event(
    project: str, zone: str, name: str, instance_id: str, method: str, at: datetime, *, user: str, part: str = ""
) -> dict[str, Any]:
    """Return an entry about one instance.

    Args:
        project: id of its project.
        zone: name of its zone.
        name: of the instance.
        instance_id: its number.
        method: of a system event, or one of `CALLED`.
        at: market time.
        user: who did it; the cloud itself is `system@google.com`.
        part: `first` or `last` of the two entries of what takes a while; empty for an only one.
    """
    system = method.startswith(SYSTEM)
    log = "system_event" if system else "activity"
    operation = f"{'systemevent' if system else 'operation'}-{int(at.timestamp() * 1000)}-{secrets.token_hex(8)}"
    payload = {
        "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
        "authenticationInfo": {"principalEmail": "system@google.com" if system else user},
        "serviceName": "compute.googleapis.com",
        "methodName": method,
        "resourceName": f"projects/{project}/zones/{zone}/instances/{name}",
        "request": {"@type": f"type.googleapis.com/{method}"},
    }
    if method in _SAID:
        payload["status"] = {"message": _SAID[method]}
    return {
        "insertId": secrets.token_hex(8),
        "logName": f"projects/{project}/logs/cloudaudit.googleapis.com%2F{log}",
        "operation": {
            "id": operation,
            "producer": "compute.googleapis.com",
            **({part: True} if part else {"first": True, "last": True}),
        },
        "protoPayload": payload,
        "resource": {
            "type": "gce_instance",
            "labels": {"instance_id": instance_id, "project_id": project, "zone": zone},
        },
        "severity": "INFO" if system else "NOTICE",
        "timestamp": stamp(at),
        "receiveTimestamp": stamp(at),
    }
