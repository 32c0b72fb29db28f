"""Stands in for Compute Engine's rules of scheduling: Spot, restarts, maintenance, notices, the longest run.

It offers the provisioning models STANDARD and SPOT; sole tenancy, graceful shutdown and the times of local SSDs and of
hosts are refused by name.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from everspot_local.gcp.answers import ApiError, invalid, not_here

_KNOWN = {
    "automaticRestart", "onHostMaintenance", "preemptible", "provisioningModel", "instanceTerminationAction",
    "maxRunDuration", "terminationTime", "preemptionNoticeDuration", "skipGuestOsShutdown",
}  # fmt: skip
NOTICES = (timedelta(), timedelta(seconds=120))
"""Release notes of 2026-09-30: the notice is of 120 s, or of none."""
SHORTEST_RUN, LONGEST_RUN = timedelta(seconds=30), timedelta(days=120)
"""Compute Engine, "Limit the run time of a VM"."""


def completed(scheduling: Mapping[str, Any], field: str, *, gpus: bool) -> dict[str, Any]:
    """Return a scheduling with the defaults that the API adds.

    Args:
        scheduling: of a request.
        field: its path there, for what is refused.
        gpus: whether the instance has any.

    Raises:
        ApiError: for fields that contradict each other or that are not known here.
    """
    if unknown := sorted(set(scheduling) - _KNOWN):
        raise not_here(f"{field}.{unknown[0]}")
    model = scheduling.get("provisioningModel") or ("SPOT" if scheduling.get("preemptible") else "STANDARD")
    if model not in ("STANDARD", "SPOT"):
        raise not_here(f"provisioning model {model}")
    spot = model == "SPOT"
    _check_together(scheduling, field, spot=spot, gpus=gpus)
    _check_times(scheduling, field, spot=spot)
    usual = "TERMINATE" if spot else "MIGRATE"
    whole = {"onHostMaintenance": usual, "automaticRestart": not spot, **scheduling}
    return {**whole, "preemptible": spot, "provisioningModel": model}


def _check_together(scheduling: Mapping[str, Any], field: str, *, spot: bool, gpus: bool) -> None:
    if spot and scheduling.get("preemptible") is False:
        raise invalid(f"{field}.preemptible", False, "Scheduling must have preemptible be true for Spot VMs.")
    if not spot and scheduling.get("preemptible"):
        raise invalid(f"{field}.preemptible", True, "Scheduling must have preemptible be false for standard VMs.")
    # The words of both: https://github.com/percona/mongo_terraform_ansible/issues/39, and as met in many modules.
    if spot and scheduling.get("automaticRestart"):
        message = "Scheduling must have preemptible be false when AutomaticRestart is true."
        raise invalid(f"{field}.preemptible", True, message)
    if spot and scheduling.get("onHostMaintenance", "TERMINATE") != "TERMINATE":
        message = "Scheduling must have preemptible be false when OnHostMaintenance isn't TERMINATE."
        raise invalid(f"{field}.preemptible", True, message)
    if gpus and not spot and scheduling.get("onHostMaintenance", "MIGRATE") != "TERMINATE":
        # Compute Engine, "GPU instances must terminate for host maintenance events".
        raise ApiError(400, "unsupportedOperation", "Instances with guest accelerators do not support live migration.")


def _check_times(scheduling: Mapping[str, Any], field: str, *, spot: bool) -> None:
    notice = duration(scheduling.get("preemptionNoticeDuration"))
    if "preemptionNoticeDuration" in scheduling and not spot:
        # Discovery document, `Scheduling.preemptionNoticeDuration`: "for Spot VMs only".
        raise invalid(f"{field}.preemptionNoticeDuration", notice, "It can be set for Spot VMs only.")
    if notice not in NOTICES:
        message = "The preemption notice duration must be 0 or 120 seconds."
        raise invalid(f"{field}.preemptionNoticeDuration", notice, message)
    if "maxRunDuration" in scheduling and "terminationTime" in scheduling:
        message = "Only one of maxRunDuration and terminationTime can be specified."
        raise invalid(f"{field}.maxRunDuration", "", message)
    longest = duration(scheduling.get("maxRunDuration"))
    if "maxRunDuration" in scheduling and not SHORTEST_RUN <= longest <= LONGEST_RUN:
        message = "The max run duration must be between 30 seconds and 120 days."
        raise invalid(f"{field}.maxRunDuration", longest, message)
    limited = "maxRunDuration" in scheduling or "terminationTime" in scheduling
    if scheduling.get("instanceTerminationAction") and not spot and not limited:
        message = "Termination action can be specified for Spot VMs and for VMs with a limited run time only."
        raise invalid(f"{field}.instanceTerminationAction", scheduling["instanceTerminationAction"], message)


def duration(value: Mapping[str, Any] | None) -> timedelta:
    """Convert a `Duration` of the API; None becomes zero."""
    fields = value or {}
    return timedelta(seconds=int(fields.get("seconds", 0)), microseconds=int(fields.get("nanos", 0)) // 1000)


def notice_period(scheduling: Mapping[str, Any]) -> timedelta:
    """Return how long before the ACPI signal a Spot instance gets its notice."""
    return duration(scheduling.get("preemptionNoticeDuration"))


def run_limit(scheduling: Mapping[str, Any], running_at: datetime) -> datetime | None:
    """Return when an instance reaches its longest run time; None without a limit."""
    if "maxRunDuration" in scheduling:
        return running_at + duration(scheduling["maxRunDuration"])
    if "terminationTime" in scheduling:
        return datetime.fromisoformat(scheduling["terminationTime"])
    return None


def deleted_at_end(scheduling: Mapping[str, Any]) -> bool:
    """Return whether the cloud deletes the instance when it ends it. API reference: STOP is the default."""
    return scheduling.get("instanceTerminationAction") == "DELETE"
