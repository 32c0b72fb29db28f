"""Stands in for Compute Engine's rules of regional managed instance groups: what one may be, and what the API adds.

What is not named here is refused by its name: stateful groups, standby sizes, canaries, bulk sizes, target pools,
accelerator topologies, and overrides of the template by the group.
"""

from collections.abc import Mapping
from typing import Any

from everspot_local.gcp.answers import invalid, not_here, required
from everspot_local.gcp.compute.machine_types import machine_types
from everspot_local.gcp.compute.names import tail
from everspot_local.gcp.compute.selection import read_ranked_types
from everspot_local.gcp.compute.state import Compute, fingerprint

Document = dict[str, Any]
LARGEST = 2000
"""Discovery document, `regionInstanceGroupManagers.insert`: up to 2,000 VMs."""
_NAME_AT_MOST = 58
"""Discovery document, `baseInstanceName`."""
_FLEXIBLE = ("ANY", "ANY_SINGLE_ZONE", "BALANCED")
_NOT_OFFERED = ("statefulPolicy", "allInstancesConfig", "resourcePolicies", "targetPools", "namedPorts")


def completed(compute: Compute, scope: str, body: Document) -> Document:
    """Return a group with the fields that the API adds.

    Raises:
        ApiError: for what cannot be so, or is not known here.
    """
    for name in _NOT_OFFERED:
        if body.get(name):
            raise not_here(f"resource.{name}")
    if any(body.get(name) for name in ("targetSuspendedSize", "targetStoppedSize")):
        raise not_here("standby sizes")
    if body.get("targetSizePolicy", {}).get("mode", "INDIVIDUAL") != "INDIVIDUAL":
        raise not_here("bulk target sizes")
    if body.get("targetSize") is None:
        raise required("resource.targetSize")
    if not 0 <= body["targetSize"] <= LARGEST:
        raise invalid("resource.targetSize", body["targetSize"], f"Must be between 0 and {LARGEST}.")
    base = body.get("baseInstanceName") or body["name"][:54]
    if len(base) > _NAME_AT_MOST:
        raise invalid("resource.baseInstanceName", base, f"Must be at most {_NAME_AT_MOST} characters long.")
    policy = _distribution(compute, body.get("distributionPolicy", {}))
    _check_flexibility(compute, body.get("instanceFlexibilityPolicy"), policy["targetShape"])
    template = _template(compute, body)
    count = len(policy["zones"])
    return {
        "standbyPolicy": {"initialDelaySec": 0, "mode": "MANUAL"},
        "targetSizePolicy": {"mode": "INDIVIDUAL"},
        "listManagedInstancesResults": "PAGELESS",
        **body,
        "baseInstanceName": base,
        "distributionPolicy": policy,
        "instanceTemplate": template,
        "versions": [_version(body, template)],
        "instanceGroup": compute.link(f"{scope}/instanceGroups/{body['name']}"),
        "updatePolicy": _update(body.get("updatePolicy", {}), policy["targetShape"], count),
        "instanceLifecyclePolicy": _lifecycle(body.get("instanceLifecyclePolicy", {}), policy["targetShape"]),
        "autoHealingPolicies": _healing(compute, body.get("autoHealingPolicies", ())),
        "fingerprint": fingerprint(sorted(body.items(), key=lambda item: item[0])),
    }


def _version(body: Mapping[str, Any], template: str) -> Document:
    """Return the only version of a group, which covers its whole size and has no size of its own."""
    version: Mapping[str, Any] = next(iter(body.get("versions", ())), {})
    return {**{name: value for name, value in version.items() if name != "targetSize"}, "instanceTemplate": template}


def _template(compute: Compute, body: Mapping[str, Any]) -> str:
    """Return the link to a group's only template."""
    versions = body.get("versions", ())
    # The provider sends an empty size for a missing one.
    if len(versions) > 1 or any(version.get("targetSize") for version in versions):
        raise not_here("canary updates: a group with two versions, or with a size of one")
    link = versions[0].get("instanceTemplate") if versions else body.get("instanceTemplate")
    if not link:
        raise required("resource.instanceTemplate")
    return compute.link(compute.referred(link, "instanceTemplates", "resource.instanceTemplate"))


def _distribution(compute: Compute, policy: Mapping[str, Any]) -> Document:
    zones = [tail(str(zone.get("zone", ""))) for zone in policy.get("zones", ())] or list(compute.project.zones)[:3]
    for zone in zones:
        compute.check_zone(zone)
    links = [{"zone": compute.link(f"projects/{compute.name}/zones/{zone}")} for zone in zones]
    return {"targetShape": policy.get("targetShape", "EVEN"), "zones": links}


def _check_flexibility(compute: Compute, policy: Mapping[str, Any] | None, shape: str) -> None:
    if policy is None:
        return
    field = "resource.instanceFlexibilityPolicy"
    ranked_types = read_ranked_types(policy.get("instanceSelections", {}), field)
    for name, selection in policy.get("instanceSelections", {}).items():
        if more := sorted(set(selection) - {"machineTypes", "rank"}):
            raise not_here(f"{field}.instanceSelections[{name}].{more[0]}")
    for kind in ranked_types.types:
        if kind not in machine_types(compute.project.market.pools.catalogue):
            raise invalid(field, kind, f"Machine type with name '{kind}' does not exist.")
    if shape not in _FLEXIBLE:
        # As met: "Instance flexibility policy is supported only for RMIGs with target shapes …"
        message = "Instance flexibility policy is supported only for RMIGs with target shapes ANY, ANY_SINGLE_ZONE and "
        raise invalid("resource.distributionPolicy.targetShape", shape, f"{message}BALANCED.")


def _update(policy: Mapping[str, Any], shape: str, zones: int) -> Document:
    usual = "PROACTIVE" if shape == "EVEN" else "NONE"
    whole: Document = {
        "type": "OPPORTUNISTIC", "minimalAction": "REPLACE", "replacementMethod": "SUBSTITUTE",
        "instanceRedistributionType": usual, **policy,
    }  # fmt: skip
    if shape != "EVEN" and whole["instanceRedistributionType"] == "PROACTIVE":
        # Compute Engine, "Set the target distribution shape": proactive redistribution has to be off for other shapes.
        message = f"Proactive instance redistribution must be disabled for target shape {shape}."
        raise invalid("resource.updatePolicy.instanceRedistributionType", "PROACTIVE", message)
    for name in ("maxSurge", "maxUnavailable"):
        limit = whole.get(name, {})
        if "percent" in limit:
            raise not_here(f"resource.updatePolicy.{name}.percent")
        fixed = int(limit.get("fixed", 0 if name == "maxSurge" and whole["replacementMethod"] == "RECREATE" else zones))
        if 0 < fixed < zones:
            # As met: https://github.com/world-federation-of-advertisers/cross-media-measurement/pull/4139
            message = (
                f"Fixed updatePolicy.{name} for regional managed instance group has to be either 0 or at least equal "
            )
            raise invalid(f"resource.updatePolicy.{name}.fixed", fixed, f"{message}to the number of zones.")
        whole[name] = {"fixed": fixed, "calculated": fixed}
    if not whole["maxSurge"]["fixed"] and not whole["maxUnavailable"]["fixed"]:
        message = "maxSurge and maxUnavailable must not both be 0."
        raise invalid("resource.updatePolicy", "", message)
    if whole["replacementMethod"] == "RECREATE" and whole["maxSurge"]["fixed"]:
        message = "maxSurge must be 0 with the replacement method RECREATE."
        raise invalid("resource.updatePolicy.maxSurge", whole["maxSurge"]["fixed"], message)
    return whole


def _lifecycle(policy: Mapping[str, Any], shape: str) -> Document:
    whole: Document = {
        "defaultActionOnFailure": "REPAIR", "forceUpdateOnRepair": "NO", "onFailedHealthCheck": "DEFAULT_ACTION",
        **policy,
    }  # fmt: skip
    moves = policy.get("onRepair", {}).get("allowChangingZone", "NO")
    if moves == "YES" and (shape not in ("ANY", "BALANCED") or whole["forceUpdateOnRepair"] != "YES"):
        # Release notes of 2026-07-21: of regional groups with these shapes, and with updates forced on repair.
        message = "Changing the zone on repair needs target shape ANY or BALANCED, and forceUpdateOnRepair=YES."
        raise invalid("resource.instanceLifecyclePolicy.onRepair.allowChangingZone", "YES", message)
    return {**whole, "onRepair": {"allowChangingZone": moves}}


def _healing(compute: Compute, policies: Any) -> list[Document]:
    if len(policies) > 1:
        # Discovery document, `autoHealingPolicies`: "You can specify only one autohealing policy".
        raise invalid("resource.autoHealingPolicies", "", "Only one autohealing policy can be specified.")
    checked_policies = []
    for policy in policies:
        delay = int(policy.get("initialDelaySec", 0))
        if not 0 <= delay <= 3600:
            raise invalid("resource.autoHealingPolicies[0].initialDelaySec", delay, "Must be between 0 and 3600.")
        check = policy.get("healthCheck")
        if not check:
            raise required("resource.autoHealingPolicies[0].healthCheck")
        path = compute.referred(check, "healthChecks", "resource.autoHealingPolicies[0].healthCheck")
        checked_policies.append({"healthCheck": compute.link(path), "initialDelaySec": delay})
    return checked_policies
