"""The demonstration's facts about each cloud: which stacks, which pools lose their capacity, and how the cloud is
asked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from typing import cast

DEMO_CLOUDS = ("aws", "gcp", "kubernetes")
Environment = Mapping[str, str]


@dataclass(frozen=True)
class Site:
    """The demonstration on one cloud.

    Leftovers and launches are read from the cloud's own API, not through the product.

    Attributes:
        account: stack of the account; None where an account needs none.
        cluster: stack of the cluster, on top of the account.
        dry: pools that fit the patient job; they have no Spot capacity while it waits.
        patient: additions to the patient job's submission, so that it fits no other pools.
        folder: working folder below `.everspot`.
        asked_through: name of the API that answers, for the report.
        launched: returns the instances that the scheduler launched for jobs and that have not ended.
        leftovers: returns every resource that the named cluster could have left behind, by kind and id.
        settings: settings of stacks that are a user's own, by stack.
        find_machine: returns the market's machine of an instance.
        machine_cloud: the cloud whose machines the bill counts, if it is another one.
        time_scale: seconds of market time in a second.
        moment: how late the scheduler may do what it has said it will do at a moment: market time.
        waited: the patient job has waited for Spot if its first instance was launched so long after its submission:
            market time.
    """

    cloud: str
    account: str | None
    cluster: str
    dry: tuple[str, ...]
    patient: tuple[str, ...]
    folder: str
    asked_through: str
    launched: Callable[[Environment], list[str]]
    leftovers: Callable[[Environment, str], list[str]]
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    find_machine: Callable[[Environment, str], str] = lambda _, instance_id: instance_id
    machine_cloud: str | None = None
    time_scale: float = 12.0
    moment: timedelta = timedelta(minutes=2)
    waited: timedelta = timedelta(minutes=10)

    @property
    def stacks(self) -> tuple[str, ...]:
        """Return the stacks in the order in which they come up."""
        return (self.cluster,) if self.account is None else (self.account, self.cluster)

    @property
    def billed_cloud(self) -> str:
        """Return the cloud whose machines the bill counts."""
        return self.machine_cloud or self.cloud


def load_site(cloud: str) -> Site:
    """Return the site of one of `DEMO_CLOUDS`. Only its module, and its client, are loaded."""
    return cast(Site, import_module(f"everspot_local.demo.{cloud}").SITE)
