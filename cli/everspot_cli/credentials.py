"""The CLI's credentials for a store, which the store's cloud finds."""

from collections.abc import Callable
from typing import Any

from everspot_clouds.base import CloudError
from everspot_clouds.registry import find_cloud, provider

from everspot_cli.errors import CliError, Exit
from everspot_cli.local_cloud_hints import with_local_cloud


def for_store(url: str, profile: str | None) -> Callable[[], Any] | None:
    """Return a provider of credentials for `Store.open`, or None if the store finds them by itself.

    Raises:
        CliError: if there are no credentials, or the profile cannot be used.
    """
    cloud = find_cloud(url)
    if cloud is None:
        return None
    try:
        return provider(cloud).credentials(url, profile)
    except CloudError as error:
        raise CliError(str(error), Exit.UNAVAILABLE, hint=with_local_cloud(error.fix)) from None
