"""Reads a job's secrets by name, with the instance's role. They exist in this process and its children only."""

from collections.abc import Mapping

from everspot_clouds.base import CloudError
from everspot_clouds.registry import provider

from everspot_train.prepare.errors import NotReady

_LONGEST = 120 * 1024  # bytes: Linux takes 128 KiB for one variable


def read_secrets(references: Mapping[str, str], cloud: str, region: str) -> dict[str, str]:
    """Return the values by variable, read from the cloud. Without references the cloud's client is not even loaded.

    Raises:
        NotReady: for the first that cannot be read. It has the name, and never a value.
    """
    if not references:
        return {}
    read = provider(cloud).secrets(region)
    values = {}
    for variable, reference in references.items():
        try:
            values[variable] = read(reference)
        except CloudError as error:
            fix = f": {error.fix}" if error.fix else ""
            raise NotReady(f"secret {reference} for {variable} cannot be read: {error}{fix}") from None
        if "\0" in values[variable] or len(values[variable].encode()) > _LONGEST:
            raise NotReady(f"secret {reference} for {variable} is no value that a variable can hold")
    return values
