"""Stands in for EC2 Auto Scaling's instance refresh, which moto lacks: a group's instances are replaced one by one.

With room above the desired capacity (MaxHealthyPercentage over 100) the new instance is launched first and the old one
ends when the new one has been in service for the warm-up; without, the old one ends first. There are no checkpoints,
alarms, rollbacks or other strategies than Rolling; these are refused by name.
"""

import uuid
from datetime import datetime, timedelta
from typing import Any, Protocol

from moto.autoscaling.exceptions import AutoscalingClientError, ValidationError
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult

from everspot_local.aws import account
from everspot_local.market.clock import stamp

DEFAULT_MIN_HEALTHY = 90
LAUNCH_TRIES = 20
_PREFERENCES = {"MinHealthyPercentage", "MaxHealthyPercentage", "InstanceWarmup", "SkipMatching",
                "ScaleInProtectedInstances", "StandbyInstances"}  # fmt: skip


class InstanceRefreshInProgress(AutoscalingClientError):
    """The group has an instance refresh already."""

    def __init__(self) -> None:
        super().__init__("InstanceRefreshInProgress", "An Instance Refresh is already in progress and blocks this one.")


class NoActiveRefresh(AutoscalingClientError):
    """The group has no instance refresh that could be cancelled."""

    def __init__(self, group: str) -> None:
        super().__init__(
            "ActiveInstanceRefreshNotFound",
            f"No in progress or pending Instance Refresh found for Auto Scaling group {group}",
        )


class Group(Protocol):
    """The requests of a refresh to the group whose instances it replaces."""

    name: str
    instance_states: list[Any]
    health_check_grace_period: int | None

    @property
    def members(self) -> list[Any]:
        """Return the group's instances."""

    def matches(self, instance: Any) -> bool:
        """Return whether an instance was launched from what the group launches from now."""

    def launch_one(self, propagated_tags: dict[str, str]) -> Any:
        """Launch one more member."""

    def let_go(self, instance: Any) -> None:
        """Terminate a member without replacing it."""

    def heal(self) -> None:
        """Bring the group back to its desired capacity."""


class Refresh:
    """One refresh of a group, carried out by the market's thread step by step."""

    def __init__(self, group: Group, preferences: dict[str, Any]) -> None:
        self.id = str(uuid.uuid4())
        self.status = "Pending"
        self.reason: str | None = None
        self.started: datetime = account.current().market.clock.now()
        self.ended: datetime | None = None
        self.preferences = preferences
        self._group = group
        self._first = int(preferences.get("MaxHealthyPercentage") or 100) > 100
        warmup = preferences.get("InstanceWarmup")
        self._warmup = timedelta(seconds=int(warmup if warmup is not None else group.health_check_grace_period or 300))
        skip = bool(preferences.get("SkipMatching"))
        self._old = [member for member in group.members if not (skip and group.matches(member))]
        self._all, self._tries = len(self._old), LAUNCH_TRIES

    @property
    def active(self) -> bool:
        """Return whether the refresh is still going on."""
        return self.status in ("Pending", "InProgress")

    def step(self) -> None:
        """Replace the next instance, or finish."""
        if not self.active:
            return
        self.status = "InProgress"
        self._old = [instance for instance in self._old if instance.alive]
        if not self._old:
            self.end("Successful")
        elif self._first:
            self._launch()
        else:
            self._finish(None)

    def end(self, status: str, reason: str | None = None) -> None:
        """End the refresh; `reason` says why it failed or was cancelled."""
        self.status, self.reason, self.ended = status, reason, account.current().market.clock.now()

    def document(self) -> dict[str, Any]:
        """Return the refresh as DescribeInstanceRefreshes shows it."""
        remaining = len([instance for instance in self._old if instance.alive])
        return {
            "InstanceRefreshId": self.id,
            "AutoScalingGroupName": self._group.name,
            "Status": self.status,
            "StatusReason": self.reason,
            "StartTime": stamp(self.started),
            "EndTime": stamp(self.ended) if self.ended else None,
            "PercentageComplete": 100 if self._all == 0 else 100 * (self._all - remaining) // self._all,
            "InstancesToUpdate": remaining,
            "Preferences": self.preferences,
        }

    def _launch(self) -> None:
        here = account.current()
        try:
            new = self._group.launch_one({})
        except ServiceException as error:
            self._tries -= 1
            if self._tries <= 0:
                self.end("Failed", str(error))
            else:
                here.market.timeline.after(here.market.delays.retry, self.step)
            return
        here.market.timeline.after(here.market.delays.pending + self._warmup, lambda: self._finish(new))

    def _finish(self, new: Any) -> None:
        """Terminate the oldest of the old instances, now that its replacement, if there is one, is in service."""
        if not self.active:
            return
        if new is not None and new.state != "running":
            self.end("Failed", f"Instance {new.id} did not come into service.")
            return
        here = account.current()
        if self._old:
            old = self._old.pop(0)
            self._group.let_go(old)
        if new is None:
            here.market.timeline.after(here.market.delays.heal, self._group.heal)
            here.market.timeline.after(here.market.delays.heal + here.market.delays.pending + self._warmup, self.step)
        else:
            self.step()


def start_instance_refresh(self: AutoScalingResponse) -> ActionResult:
    """StartInstanceRefresh."""
    group = _group(self)
    preferences = dict(self._get_param("Preferences") or {})
    _check(self._get_param("Strategy") or "Rolling", preferences, self._get_param("DesiredConfiguration"))
    if any(refresh.active for refresh in group.refreshes):
        raise InstanceRefreshInProgress
    refresh = Refresh(group, preferences)
    group.refreshes.append(refresh)
    account.current().market.timeline.after(account.current().market.delays.submit, refresh.step)
    return ActionResult({"InstanceRefreshId": refresh.id})


def describe_instance_refreshes(self: AutoScalingResponse) -> ActionResult:
    """DescribeInstanceRefreshes, the newest first."""
    ids = self._get_param("InstanceRefreshIds") or []
    refreshes = [r for r in reversed(_group(self).refreshes) if not ids or r.id in ids]
    return ActionResult({"InstanceRefreshes": [refresh.document() for refresh in refreshes]})


def cancel_instance_refresh(self: AutoScalingResponse) -> ActionResult:
    """Answer CancelInstanceRefresh. Instances that it launched stay until the group returns to its desired capacity."""
    group = _group(self)
    for refresh in group.refreshes:
        if refresh.active:
            refresh.end("Cancelled", "Cancelled by the user")
            group.heal()
            return ActionResult({"InstanceRefreshId": refresh.id})
    raise NoActiveRefresh(group.name)


def _group(response: AutoScalingResponse) -> Any:
    name = response._get_param("AutoScalingGroupName")
    group = response.autoscaling_backend.autoscaling_groups.get(name)
    if group is None:
        raise ValidationError("AutoScalingGroup name not found - null")
    return group


def _check(strategy: str, preferences: dict[str, Any], desired: Any) -> None:
    if strategy != "Rolling" or desired:
        raise ValidationError("The local cloud supports the strategy Rolling without a desired configuration only.")
    unset: tuple[Any, ...] = (None, "", [], {}, False, 0)
    unknown = sorted(k for k, v in preferences.items() if k not in _PREFERENCES and v not in unset)
    if unknown:
        raise ValidationError(f"The local cloud does not support {', '.join(unknown)} of RefreshPreferences.")
    least = preferences.get("MinHealthyPercentage")
    most = preferences.get("MaxHealthyPercentage")
    if most is not None and least is None:
        raise ValidationError("You must specify MinHealthyPercentage when you specify MaxHealthyPercentage.")
    low, high = int(least if least is not None else DEFAULT_MIN_HEALTHY), int(most if most is not None else 100)
    if not (0 <= low <= 100 <= high <= 200 and high - low <= 100):
        raise ValidationError(
            "MinHealthyPercentage lies between 0 and 100, MaxHealthyPercentage between 100 and 200, and the difference "
            "between them cannot be greater than 100."
        )
