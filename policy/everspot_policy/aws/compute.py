"""How instances are launched."""

import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from everspot_clouds.plain_credentials import LONGEST, kinds_in, unpacked
from everspot_core.validation.problems import Problem

from everspot_policy.aws.kinds import FLEET, LAUNCHES, SPOT_FLEET, TEMPLATE, VOLUME
from everspot_policy.reading import hidden, lacks, mapping, number, objects, text
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

MOST_HOPS = 1
_LINES = re.compile(r"(?:[A-Za-z0-9+/]{60,}\s+)+[A-Za-z0-9+/]*={0,2}\s*")


@rule(
    "aws-metadata-v2",
    Level.MANDATORY,
    Severity.HIGH,
    title="Instance metadata requires session tokens (IMDSv2)",
    remedy="Set metadataOptions.httpTokens to required. Defaults of the account or the image can change.",
    types=LAUNCHES,
    checkov=("CKV_AWS_79",),
)
def metadata_v2(subject: Subject) -> Iterator[Problem]:
    """Find launches without session tokens, unless there is no metadata service at all."""
    options = subject.inputs.get("metadataOptions")
    if hidden(options) or (options is None and _templated(subject.inputs)):
        return
    settings = mapping(options)
    if settings.get("httpEndpoint") == "disabled" or hidden(settings.get("httpTokens")):
        return
    if settings.get("httpTokens") != "required":
        yield Problem("metadataOptions.httpTokens", "has to be required")


def _templated(inputs: Mapping[str, Any]) -> bool:
    """Return whether a template, which is judged by itself, says what the launch does not."""
    return inputs.get("launchTemplate") is not None


@rule(
    "aws-metadata-hop-limit",
    Level.MANDATORY,
    Severity.MEDIUM,
    title="Instance metadata is limited to the instance",
    remedy="Set metadataOptions.httpPutResponseHopLimit to 1, or leave it out. Give containers roles of their own.",
    types=LAUNCHES,
    checkov=("CKV_AWS_341",),
)
def metadata_hop_limit(subject: Subject) -> Iterator[Problem]:
    """Find hop limits that let a container, or a proxy, ask for the instance."""
    hops = number(mapping(subject.inputs.get("metadataOptions")).get("httpPutResponseHopLimit"))
    if hops is not None and hops > MOST_HOPS:
        yield Problem("metadataOptions.httpPutResponseHopLimit", f"has to be {MOST_HOPS}, not {hops:g}")


@rule(
    "aws-volumes-encrypted",
    Level.MANDATORY,
    Severity.HIGH,
    title="Volumes are encrypted",
    remedy="Set encrypted to true, also for the root volume, where the image decides otherwise. If the account "
    "encrypts by default, switch the rule off.",
    types=(*LAUNCHES, VOLUME),
    checkov=("CKV_AWS_3", "CKV_AWS_8"),
)
def volumes_encrypted(subject: Subject) -> Iterator[Problem]:
    """Find volumes that are not declared as encrypted, and root volumes without any declaration."""
    inputs = subject.inputs
    if subject.type == VOLUME:
        if lacks(inputs.get("encrypted")):
            yield Problem("encrypted", "has to be true")
        return
    if subject.type == TEMPLATE:
        device_lists = [("blockDeviceMappings", "ebs")]
    else:
        device_lists = [("rootBlockDevice", ""), ("ebsBlockDevices", "")]
    if inputs.get(device_lists[0][0]) in (None, [], {}) and not _templated(inputs):
        yield Problem(device_lists[0][0], "is not given: the root volume has to be said to be encrypted")
    for name, inner in device_lists:
        for path, each in objects(inputs, name):
            disk = mapping(each.get(inner)) if inner else each
            if inner and (inner not in each or hidden(each.get(inner))):
                continue  # no volume of its own: one that comes with the instance, or a device left out
            if not text(each.get("noDevice")) and lacks(disk.get("encrypted")):
                yield Problem(f"{path}.{inner}.encrypted" if inner else f"{path}.encrypted", "has to be true")


@rule(
    "aws-no-secrets-in-user-data",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="User data contains no credentials, since it can be read with the instance's description",
    remedy="Give the instance a role, and read secrets from Secrets Manager or Parameter Store.",
    types=(*LAUNCHES, SPOT_FLEET),
    checkov=("CKV_AWS_46",),
)
def no_secrets_in_user_data(subject: Subject) -> Iterator[Problem]:
    """Find user data, decoded and unpacked, with something in it that looks like a credential."""
    parts: list[tuple[str, Mapping[str, Any]]] = [
        ("", subject.inputs),
        *objects(subject.inputs, "launchSpecifications"),
    ]
    for path, each in parts:
        for name in ("userData", "userDataBase64"):
            for kind in kinds_in(decoded(text(each.get(name)))):
                yield Problem(f"{path}.{name}".lstrip("."), f"seems to hold {kind}")


def decoded(user_data: str) -> str:
    """User data as the instance reads it: base64, also in lines, and compression taken off, where there are any."""
    raw = user_data[: 2 * LONGEST]
    if any(letter.isspace() for letter in raw) and not _LINES.fullmatch(raw):
        return raw
    try:
        return unpacked(raw).decode("utf-8", "replace")
    except (ValueError, zlib.error):
        return raw


@rule(
    "aws-fleet-ends-instances",
    Level.MANDATORY,
    Severity.HIGH,
    title="Deleting a fleet ends its instances",
    remedy="Set terminateInstances (a Spot Fleet: terminateInstancesOnDelete) to true. The effect of a lower target "
    "is up to the program.",
    types=(FLEET, SPOT_FLEET),
)
def fleet_ends_instances(subject: Subject) -> Iterator[Problem]:
    """Find fleets whose instances keep running after the fleet is deleted."""
    name = "terminateInstances" if subject.type == FLEET else "terminateInstancesOnDelete"
    if lacks(subject.inputs.get(name)):
        yield Problem(name, "has to be true")


RULES: tuple[Rule, ...] = (
    metadata_v2, metadata_hop_limit, volumes_encrypted, no_secrets_in_user_data, fleet_ends_instances,
)  # fmt: skip
