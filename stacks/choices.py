"""The clouds that an environment can be declared on, by the value of its `cloud` setting.

Each cloud has its own module, which is loaded if a settings file names the cloud, because a cloud's SDK takes seconds
to load.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast

from everspot_core.validation.problems import Problems


@dataclass(frozen=True)
class CloudChoice:
    """The components of one cloud: what an account needs before its first reviewed change, what else exists once per
    account, a cluster, and the inputs of each.

    `sign_in` asks the cloud who asks, before anything else is asked or declared. `bootstrap_problems`,
    `account_problems` and `cluster_problems` add what the components themselves refuse, the last given the cluster's
    name. `zones_now` asks for the region and its zones, None if the cloud does not say; `zone_problems` adds the zones
    that are not there. `short`: inputs that can be written as their only mandatory text. `lacks`: settings that only
    other clouds have, by their path without positions in lists, and what to do instead.
    """

    bootstrap: Callable[[str, Any], Any] | None
    bootstrap_args: type | None
    account: Callable[[str, Any], Any] | None
    account_args: type | None
    cluster: Callable[[str, Any], Any]
    cluster_args: type
    sign_in: Callable[[], None]
    bootstrap_problems: Callable[[Problems, Any], None] | None
    account_problems: Callable[[Problems, Any], None] | None
    cluster_problems: Callable[[Problems, str, Any], None]
    zones_now: Callable[[], tuple[str, list[str]] | None]
    zone_problems: Callable[[Problems, Any, tuple[str, list[str]] | None], None]
    short: dict[type, str]
    lacks: Mapping[str, str] = field(default_factory=dict)

    def declare(self, section: str, name: str, args: Any) -> Any:
        """Declare the component of a section, `bootstrap`, `account` or `cluster`, which the cloud has."""
        component: Callable[[str, Any], Any] = getattr(self, section)
        return component(name, args)

    def add_problems(self, problems: Problems, section: str, cluster: str, args: Any) -> None:
        """Add what the components refuse in a section, `bootstrap`, `account` or `cluster`, and the zones that the
        region does not have."""
        if section != "cluster":
            refuse = self.account_problems if section == "account" else self.bootstrap_problems
            if refuse is not None:
                refuse(problems, args)
            return
        self.cluster_problems(problems, cluster, args)
        self.zone_problems(problems, args, self.zones_now())


class _Clouds(Mapping[str, CloudChoice]):
    """The clouds by their names; each is loaded when it is asked for."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules

    def __getitem__(self, name: str) -> CloudChoice:
        return cast(CloudChoice, import_module(self._modules[name]).CHOICE)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


CHOICES: Mapping[str, CloudChoice] = _Clouds(
    {"aws": "choice_aws", "gcp": "choice_gcp", "kubernetes": "choice_kubernetes"}
)
