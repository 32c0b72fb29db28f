"""One table for each provider that the bridge can stand before: a module here is a provider, and holds its `TABLE`."""

from __future__ import annotations

import importlib
import pkgutil

from everspot_local.bridge.table import ProviderTable

# The provider of plugins that name no provider, as older set-ups wrote them.
USUAL = "aws"


def table(name: str) -> ProviderTable:
    """Return a provider's table.

    Raises:
        LookupError: for an unknown provider; the message names the known ones.
    """
    provider_names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    if name not in provider_names:
        raise LookupError(f"the bridge knows no provider {name!r}; there are {', '.join(provider_names)}")
    provider_table: ProviderTable = importlib.import_module(f"{__name__}.{name}").TABLE
    return provider_table
