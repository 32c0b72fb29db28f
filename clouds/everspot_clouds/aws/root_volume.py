"""The gp3 root volume of an instance: checks that size, IOPS and throughput fit together.

By the Amazon EBS User Guide (General Purpose SSD volumes) a gp3 volume has 3,000 to 80,000 IOPS and 125 to 2,000 MiB/s,
at most 500 IOPS per GiB of size and at most 0.25 MiB/s per provisioned IOPS.
"""

from everspot_core.documents import Frozen
from everspot_core.validation.problems import Problems

from everspot_clouds.aws.fixed_prices import INITIALIZATION_GIB

SIZES = (8, 65_536)
IOPS = (3_000, 80_000)
THROUGHPUTS = (125, 2_000)
INITIALIZATION_RATES = (100, 300)
"""MiB/s at which a volume is read from its snapshot (Amazon EBS User Guide, "Initialize Amazon EBS volumes")."""
IMAGE_GIB = 75
"""The root volume of an image as `training_image/bake/everspot.pkr.hcl` bakes it."""
IOPS_PER_GIB = 500
MIBPS_PER_IOPS = 0.25


class Volume(Frozen):
    """The wanted volume. None means EC2's default: the image's own size, 3,000 IOPS, 125 MiB/s, and blocks that are
    read from the snapshot when they are first used."""

    gib: int | None = None
    iops: int | None = None
    throughput: int | None = None
    initialization_rate: int | None = None


def volume_problems(problems: Problems, volume: Volume) -> None:
    """Add a problem for each mistake in a volume, whatever the image."""
    bounds = (("volumeGib", volume.gib, SIZES), ("volumeIops", volume.iops, IOPS),
              ("volumeThroughput", volume.throughput, THROUGHPUTS),
              ("volumeInitializationRate", volume.initialization_rate, INITIALIZATION_RATES))  # fmt: skip
    sound = [value is None or problems.number(value, name, *span, whole=True) for name, value, span in bounds]
    if not all(sound):
        return
    iops = volume.iops or IOPS[0]
    most = int(iops * MIBPS_PER_IOPS)
    problems.need(
        (volume.throughput or THROUGHPUTS[0]) <= most,
        "volumeThroughput",
        f"{volume.throughput} MiB/s is more than {most}, which is all that {iops} IOPS allow (0.25 MiB/s for each); "
        f"volumeIops: {int((volume.throughput or 0) / MIBPS_PER_IOPS)} would do",
    )
    if volume.gib is not None:
        _ratio(problems, volume.iops, volume.gib)


def resolved_gib(problems: Problems, volume: Volume, image_gib: int | None) -> int | None:
    """Return the size to launch with in GiB: the given one, otherwise the image's own. Add a problem if the image does
    not fit.

    `image_gib` None: the image does not say how large its root volume is.
    """
    if volume.gib is not None and image_gib is not None:
        problems.need(
            volume.gib >= image_gib,
            "volumeGib",
            f"{volume.gib} GiB is less than the image's own root volume of {image_gib} GiB, and EC2 refuses a volume "
            "that is smaller than its snapshot; leave it out for the image's own size",
        )
    gib = volume.gib if volume.gib is not None else image_gib
    if volume.gib is None and gib is not None:
        _ratio(problems, volume.iops, gib)
    return gib


def initialization_usd(gib: float) -> float:
    """Return the most that the initialization of one volume costs, USD. The price is that of the highest rate, for each
    GiB of the snapshot, which is at most as large as the volume."""
    return gib * float(INITIALIZATION_GIB.usd)


def _ratio(problems: Problems, iops: int | None, gib: int) -> None:
    most = max(IOPS[0], gib * IOPS_PER_GIB)
    problems.need(
        iops is None or iops <= most,
        "volumeIops",
        f"{iops} is more than {most}, which is all that {gib} GiB allow (500 for each)",
    )
