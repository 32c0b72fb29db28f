"""Derives the cloud from the names of regions and instance types, whose forms differ by cloud."""

import re

from everspot_core.capacity.catalogue import builtin

_REGIONS = {"aws": re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d"), "gcp": re.compile(r"[a-z]+-[a-z]+\d+")}
"""The form of a region's name: us-east-1 on AWS, us-east1 on Google Cloud."""


def cloud_of_region(region: str) -> str | None:
    """Return the cloud that has regions of this form of name; None if none has."""
    return next((cloud for cloud, form in _REGIONS.items() if form.fullmatch(region)), None)


def cloud_of_type(instance_type: str) -> str:
    """Return the cloud that has types of this form of name: AWS's have a dot, g5.xlarge, and Google's have dashes."""
    return "aws" if "." in instance_type else "gcp"


def catalogue_types(cloud: str) -> list[str]:
    """Return the names of a cloud's types in the catalogue that comes with Everspot."""
    return [name for name in builtin().types if cloud_of_type(name) == cloud]
