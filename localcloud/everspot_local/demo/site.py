"""The demonstration's facts about each cloud: which stacks, which pools lose their capacity, and how the cloud is
asked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import cast

CLOUDS = ("aws", "gcp")
Environment = Mapping[str, str]


@dataclass(frozen=True)
class Site:
    """The demonstration on one cloud.

    Leftovers and launches are read from the cloud's own API, not through the product.

    Attributes:
        account: stack of the account.
        cluster: stack of the cluster, on top of the account.
        settings: settings of stacks that are a user's own, by stack.
        dry: pools that fit the patient job; they have no Spot capacity while it waits.
        patient: additions to the patient job's submission, so that it fits no other pools.
        folder: working folder below `.everspot`.
        asked_through: name of the API that answers, for the report.
        launched: returns the instances that the scheduler launched for jobs and that have not ended.
        leftovers: returns every resource that the named cluster could have left behind, by kind and id.
    """

    cloud: str
    account: str
    cluster: str
    dry: tuple[str, ...]
    patient: tuple[str, ...]
    folder: str
    asked_through: str
    launched: Callable[[Environment], list[str]]
    leftovers: Callable[[Environment, str], list[str]]
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def stacks(self) -> tuple[str, str]:
        """Return both stacks in the order in which they come up."""
        return self.account, self.cluster


def load_site(cloud: str) -> Site:
    """Return the site of one of `CLOUDS`. Only its module, and its client, are loaded."""
    return cast(Site, import_module(f"everspot_local.demo.{cloud}").SITE)
