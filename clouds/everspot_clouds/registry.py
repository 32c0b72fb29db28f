"""Which clouds there are. Each is imported when it is used: what it needs is not there everywhere."""

from dataclasses import dataclass
from importlib import import_module
from typing import cast

from everspot_clouds.base import Provider


@dataclass(frozen=True)
class Entry:
    """One cloud. `module`: has its `PROVIDER`; `schemes`: of the URLs of stores that lie there."""

    module: str
    schemes: tuple[str, ...]


CLOUDS = {
    "aws": Entry("everspot_clouds.aws.provider", ("s3",)),
    "folder": Entry("everspot_clouds.folder", ("file", "memory")),
}
"""By the manifest's word for it."""

USUAL = "aws"
"""Whose metadata service an instance asks where nobody says whose."""


class UnknownCloud(ValueError):
    """A cloud that nobody has taught this version."""


def provider(cloud: str) -> Provider:
    """What there is of a cloud.

    Raises:
        UnknownCloud: if there is none of this name.
    """
    if cloud not in CLOUDS:
        raise UnknownCloud(f"this version has no adapter for {cloud}; it knows {', '.join(sorted(CLOUDS))}")
    return cast(Provider, import_module(CLOUDS[cloud].module).PROVIDER)


def cloud_of(url: str) -> str | None:
    """The name of the cloud in which a store lies, by its URL; None if there is none for such a one."""
    scheme = url.partition(":")[0]
    return next((name for name, entry in CLOUDS.items() if scheme in entry.schemes), None)
