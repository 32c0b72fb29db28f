"""Which clouds there are. Each is imported when it is used: what it needs is not there everywhere."""

from importlib import import_module
from typing import cast

from everspot_clouds.base import Provider

CLOUDS = {
    "aws": "everspot_clouds.aws.provider",
    "folder": "everspot_clouds.folder",
}
"""By the manifest's word for it: the module that has its `PROVIDER`."""


class UnknownCloud(ValueError):
    """A cloud that nobody has taught this version."""


def provider(cloud: str) -> Provider:
    """What there is of a cloud.

    Raises:
        UnknownCloud: if there is none of this name.
    """
    if cloud not in CLOUDS:
        raise UnknownCloud(f"this version has no adapter for {cloud}; it knows {', '.join(sorted(CLOUDS))}")
    return cast(Provider, import_module(CLOUDS[cloud]).PROVIDER)
