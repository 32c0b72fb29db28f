"""Launching and terminating elastic instances: CreateFleet of type `instant`, and TerminateInstances.

Sources: botocore's EC2 service model (CreateFleetRequest, SpotOptionsRequest, OnDemandOptionsRequest,
FleetLaunchTemplateOverridesRequest, CreateFleetError); EC2 User Guide, "Configure an EC2 Fleet of type instant"; EC2
Developer Guide, "Ensuring idempotency in Amazon EC2 API requests": a request with the same client token and parameters
gets the same answer and launches nothing more. The request depends on the intent alone, so that it stays the same.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from everspot_core.capacity.allocation import Prefer
from everspot_core.capacity.launching import LaunchError, LaunchIntent, LaunchPool, LaunchTrouble
from everspot_core.capacity.market import Market
from everspot_core.jobs.records import Role

from everspot_clouds.aws import errors, instances
from everspot_clouds.aws.fleet import STRATEGIES, max_unit_price
from everspot_clouds.aws.rules import CLUSTER_TAG, LAUNCH_TAG, ROLE_TAG
from everspot_clouds.base import CloudInstance, LaunchAnswer, Launched, Trouble

AT_ONCE = 100
"""The most instances in one TerminateInstances; EC2 takes 1,000 and advises smaller batches."""
RETRYABLE = (Trouble.THROTTLED, Trouble.TRANSIENT)
"""Passing failures of a whole request. After one it is not known whether the request was carried out."""
_GENERIC_MESSAGE = "failed to fulfill capacity. please review errors in the response."
"""The message of an override that failed with others; it says nothing about the override's own pool."""
_MISMATCH = "IdempotentParameterMismatch"
_DENIED = "UnauthorizedOperation"
_DENIED_AT_MOST = 3
"""After so many refused single instances, and none ended, the caller counts as not allowed to end any."""
_UNKNOWN = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")
_log = logging.getLogger(__name__)


def launch(ec2: Any, cluster: str, intent: LaunchIntent) -> LaunchAnswer:
    """See `Cloud.launch`. Raises botocore's errors if the request may have been carried out."""
    try:
        answer = ec2.create_fleet(**request(cluster, intent))
    except (ClientError, BotoCoreError) as error:
        kind = errors.trouble(error)
        if kind in RETRYABLE:
            raise
        # EC2 has carried out this token with other parameters, for example those of a scheduler of another release. Its
        # instances can be described by now. A new token would launch the same instances again.
        if errors.error_code(error) == _MISMATCH and (brought := instances.of_launch(ec2, intent.token)):
            return LaunchAnswer(instances=tuple(map(_to_launched, brought)))
        return LaunchAnswer(errors=(_refused(error, kind, intent),))
    return read(answer, intent)


def request(cluster: str, intent: LaunchIntent) -> dict[str, Any]:
    """Return the parameters of CreateFleet."""
    spot = intent.market is Market.SPOT
    tags = [{"Key": k, "Value": v} for k, v in _tags(cluster, intent).items()]
    return {
        "Type": "instant",
        "ClientToken": intent.token,
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateId": intent.template,
                    "Version": intent.template_version,
                },
                "Overrides": [_override(rank, pool, intent) for rank, pool in enumerate(intent.pools)],
            }
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": intent.count,
            "DefaultTargetCapacityType": intent.market.value,
        },
        "SpotOptions" if spot else "OnDemandOptions": _options(intent),
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("fleet", "instance")],
    }


def read(answer: dict[str, Any], intent: LaunchIntent) -> LaunchAnswer:
    """Return the answer of CreateFleet, in the terms of an intent."""
    launched = [i for group in answer.get("Instances") or [] for i in _launched(group, intent)]
    raw = answer.get("Errors") or []
    own = [e for e in raw if e.get("ErrorMessage", "").lower() != _GENERIC_MESSAGE] or raw
    return LaunchAnswer(instances=tuple(launched), errors=tuple(_error(e, intent) for e in own))


def terminate(ec2: Any, instances: Iterable[str]) -> None:
    """See `Cloud.terminate`. Raises botocore's errors.

    One id that EC2 does not know, or one protected instance, fails the whole call (API reference, TerminateInstances);
    the batch is then halved until that instance is alone. The same holds for an instance that may not be ended. An
    instance that is gone has no tags any more, so a policy that requires tags refuses the call before EC2 looks for the
    instance.
    """
    batches = _Batches(ec2)
    ids = list(dict.fromkeys(instances))
    for first in range(0, len(ids), AT_ONCE):
        batches.end(ids[first : first + AT_ONCE])
    if batches.failed:
        raise batches.failed[0]


class _Batches:
    """One round of terminations. `failed`: the errors of instances that could not be ended."""

    def __init__(self, ec2: Any) -> None:
        self._ec2 = ec2
        self._ended = 0
        self.failed: list[Exception] = []

    def end(self, batch: Sequence[str]) -> None:
        try:
            self._ec2.terminate_instances(InstanceIds=list(batch))
        except ClientError as error:
            if not self._is_of_one(error):
                raise
            if len(batch) > 1:
                half = len(batch) // 2
                self.end(batch[:half])
                self.end(batch[half:])
            elif errors.error_code(error) in _UNKNOWN:
                _log.info("%s is not known to EC2: there is nothing to end", batch[0])
            else:
                _log.error("%s cannot be ended: %s", batch[0], errors.format_error(error))
                self.failed.append(error)
        else:
            self._ended += len(batch)

    def _is_of_one(self, error: ClientError) -> bool:
        """Return whether a single instance may have failed the whole call."""
        if errors.error_code(error) == _DENIED:
            return self._ended > 0 or len(self.failed) < _DENIED_AT_MOST
        return errors.trouble(error) is Trouble.REQUEST


def _tags(cluster: str, intent: LaunchIntent) -> dict[str, str]:
    """Return the template's tags and the launch's own. AWS does not document whether EC2 adds a template's tags to
    those of a request, so the request has them all."""
    return {**intent.tags, CLUSTER_TAG: cluster, ROLE_TAG: Role.AGENT.value, LAUNCH_TAG: intent.token}


def _override(rank: int, pool: LaunchPool, intent: LaunchIntent) -> dict[str, Any]:
    """Return the override of one pool. In an instant fleet it names one subnet; a maximum price is for Spot alone."""
    override: dict[str, Any] = {"InstanceType": pool.instance_type, "SubnetId": pool.place}
    if intent.ordered:
        override["Priority"] = float(rank)
    if pool.max_price is not None and pool.market is Market.SPOT:
        override["MaxPrice"] = max_unit_price(pool.max_price, 1)
    return override


def _options(intent: LaunchIntent) -> dict[str, Any]:
    spot, on_demand = STRATEGIES[Prefer.ORDER if intent.ordered else Prefer.BALANCE]
    options: dict[str, Any] = {"AllocationStrategy": (spot if intent.market is Market.SPOT else on_demand).value}
    if intent.market is Market.ON_DEMAND:  # a reservation is paid for anyway
        options["CapacityReservationOptions"] = {"UsageStrategy": "use-capacity-reservations-first"}
    if intent.whole:
        single = {"SingleInstanceType": True, "SingleAvailabilityZone": True}
        options |= {**single, "MinTargetCapacity": intent.count}
    return options


def _launched(group: dict[str, Any], intent: LaunchIntent) -> Iterator[Launched]:
    override = (group.get("LaunchTemplateAndOverrides") or {}).get("Overrides") or {}
    kind = group.get("InstanceType") or override.get("InstanceType") or intent.pools[0].instance_type
    zone = group.get("AvailabilityZone") or _zone(override, intent) or intent.pools[0].zone
    for name in group.get("InstanceIds") or []:
        yield Launched(instance_id=name, instance_type=kind, zone=zone)


def _to_launched(instance: CloudInstance) -> Launched:
    return Launched(instance_id=instance.instance_id, instance_type=instance.instance_type, zone=instance.zone)


def _zone(override: dict[str, Any], intent: LaunchIntent) -> str:
    by_place = {pool.place: pool.zone for pool in intent.pools}
    return str(override.get("AvailabilityZone") or by_place.get(override.get("SubnetId", ""), ""))


def _error(raw: dict[str, Any], intent: LaunchIntent) -> LaunchError:
    override = (raw.get("LaunchTemplateAndOverrides") or {}).get("Overrides") or {}
    code, message = raw.get("ErrorCode") or "", raw.get("ErrorMessage") or ""
    return LaunchError(
        instance_type=override.get("InstanceType") or "",
        zone=_zone(override, intent),
        market=intent.market,
        kind=errors.launch_trouble(code),
        code=code,
        message=message,
        unresolved=errors.is_unresolved(code, message),
    )


def _refused(error: Exception, kind: Trouble, intent: LaunchIntent) -> LaunchError:
    """Return a refusal of the whole request, which concerns every pool."""
    code = errors.error_code(error)
    message = error.response.get("Error", {}).get("Message", "") if isinstance(error, ClientError) else str(error)
    # The earlier request of this token launched nothing, so a new token is safe.
    launch_kind = LaunchTrouble.TRANSIENT if code == _MISMATCH else LaunchTrouble(kind.value)
    return LaunchError(
        market=intent.market,
        kind=launch_kind,
        code=code or type(error).__name__,
        message=message,
        unresolved=errors.is_unresolved(code, message),
    )
