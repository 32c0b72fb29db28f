"""The clouds that the local cloud emulates, each imported on first use, so that commands start fast."""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol, cast

from everspot_local.machines.lifecycle import Machines
from everspot_local.market.market import LocalMarket
from everspot_local.market.market_log import Journal
from everspot_local.market.quotas import Quotas
from everspot_local.options import LOCAL_CLOUDS, Options


class CloudProvider(Protocol):
    """One provider in front of the market and its machines. `calls`: the journal of its API calls."""

    machines: Machines
    calls: Journal

    def zone_ids(self, region: str) -> dict[str, str]:
        """Return the ids of a region's zones by their names."""

    def join(self, market: LocalMarket) -> None:
        """Connect to the market; called once."""

    def application(self) -> Callable[..., Any]:
        """Return all services as one WSGI application."""

    def answer_at(self, endpoint: str) -> None:
        """Set the URL at which the services are found."""

    def reset(self) -> None:
        """Delete everything that was made; the market is reset elsewhere."""

    def close(self) -> None:
        """Close for good."""


def open_provider(options: Options) -> CloudProvider:
    """Return the cloud of these settings, with nothing in it.

    Raises:
        RuntimeError: if this process already has a cloud of a kind that allows one per process.
    """
    return cast(CloudProvider, _part(options.cloud, "assembly").open_provider(options))


def quotas(cloud: str, values: Mapping[str, float]) -> Quotas:
    """Return an account's quotas. `values`: by quota code, where they differ from the cloud's.

    Raises:
        ValueError: for a code that is unknown or a value below 0.
    """
    return cast(Quotas, _part(cloud, "quotas").account_quotas(dict(values)))


def owner(cloud: str, url: str, region: str) -> dict[str, str]:
    """Return the environment that points the account's owner to the services at a URL."""
    return cast(dict[str, str], _part(cloud, "environment").owner(url, region))


def abroad(cloud: str, url: str) -> dict[str, str]:
    """Return the environment that points programs of another cloud to the services at a URL.

    Raises:
        ValueError: for a cloud that is unknown.
    """
    if cloud not in LOCAL_CLOUDS:
        raise ValueError(f"there is no cloud {cloud!r} here; one of {', '.join(LOCAL_CLOUDS)}")
    return cast(dict[str, str], _part(cloud, "environment").abroad(url))


def _part(cloud: str, name: str) -> ModuleType:
    return import_module(f"everspot_local.{cloud}.{name}")
