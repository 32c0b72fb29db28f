"""Holds volumes to EC2's limits: size against the snapshot, IOPS and throughput by type and by ratio.

Ranges: botocore's LaunchTemplateEbsBlockDeviceRequest (ec2/2016-11-15/service-2.json). Ratios: Amazon EBS User Guide,
"General Purpose SSD volumes". EC2 looks at them when a volume is made, not when a launch template is.
"""

from dataclasses import dataclass
from typing import Any

from moto.ec2.exceptions import EC2ClientError

GP3_BASE_IOPS, GP3_BASE_THROUGHPUT = 3000, 125
GP3_IOPS_PER_GIB, GP3_THROUGHPUT_PER_IOPS = 500, 0.25


INITIALIZATION_RATES = (100, 300)
"""MiB/s (botocore's LaunchTemplateEbsBlockDeviceRequest)."""


@dataclass(frozen=True)
class VolumeType:
    """The sizes (GiB), IOPS and throughputs (MiB/s) that a volume type accepts; None if it has no such parameter."""

    gib: tuple[int, int]
    iops: tuple[int, int] | None = None
    throughput: tuple[int, int] | None = None


KINDS = {
    "gp2": VolumeType((1, 16384)),
    "gp3": VolumeType((1, 65536), (3000, 80_000), (125, 2000)),
    "io1": VolumeType((4, 16384), (100, 64_000)),
    "io2": VolumeType((4, 65536), (100, 256_000)),
    "st1": VolumeType((125, 16384)),
    "sc1": VolumeType((125, 16384)),
    "standard": VolumeType((1, 1024)),
}


def check_size(gib: int, snapshot_id: str, snapshot_gib: int) -> None:
    """Refuse a volume that is smaller than its snapshot."""
    if gib < snapshot_gib:
        raise EC2ClientError(
            "InvalidBlockDeviceMapping",
            f"Volume of size {gib}GB is smaller than snapshot '{snapshot_id}', expect size >= {snapshot_gib}GB",
        )


def check_volume(ebs: dict[str, Any]) -> None:
    """Check size, IOPS and throughput of a volume by its type."""
    name = ebs.get("VolumeType") or "gp2"
    if name not in KINDS:
        raise EC2ClientError("InvalidParameterValue", f"Value ({name}) for parameter volumeType is invalid.")
    kind, gib = KINDS[name], int(ebs["VolumeSize"])
    if not kind.gib[0] <= gib <= kind.gib[1]:
        raise EC2ClientError(
            "InvalidParameterValue",
            f"Volume size is invalid for {name}: {gib} GiB, expected {kind.gib[0]} to {kind.gib[1]} GiB.",
        )
    iops = _number(ebs, "Iops", name, kind.iops)
    throughput = _number(ebs, "Throughput", name, kind.throughput)
    _number(ebs, "VolumeInitializationRate", name, INITIALIZATION_RATES)
    if name == "gp3":
        _check_ratios(gib, iops, throughput)


def _number(ebs: dict[str, Any], field: str, name: str, allowed: tuple[int, int] | None) -> int | None:
    value = ebs.get(field)
    if not value:
        return None
    if allowed is None:
        raise EC2ClientError(
            "InvalidParameterCombination", f"The parameter {field.lower()} is not supported for {name} volumes."
        )
    if not allowed[0] <= int(value) <= allowed[1]:
        bound = f"low; minimum is {allowed[0]}" if int(value) < allowed[0] else f"high; maximum is {allowed[1]}"
        raise EC2ClientError("InvalidParameterValue", f"Volume {field.lower()} of {value} is too {bound}.")
    return int(value)


def _check_ratios(gib: int, iops: int | None, throughput: int | None) -> None:
    if iops and iops > GP3_BASE_IOPS and iops / gib > GP3_IOPS_PER_GIB:
        raise EC2ClientError(
            "InvalidParameterValue",
            f"Iops to volume size ratio of {iops / gib:.6f} is too high; maximum is {GP3_IOPS_PER_GIB}",
        )
    ratio = (throughput or GP3_BASE_THROUGHPUT) / (iops or GP3_BASE_IOPS)
    if ratio > GP3_THROUGHPUT_PER_IOPS:
        raise EC2ClientError(
            "InvalidParameterValue",
            f"Throughput (MiBps) to iops ratio of {ratio:.6f} is too high; maximum is "
            f"{GP3_THROUGHPUT_PER_IOPS:.6f} MiBps per iops",
        )
