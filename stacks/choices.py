"""The clouds on which an environment can be declared, by the word that its settings say.

What a cloud brings is in a module of its own, which is loaded when a settings file says its name: the SDK of a cloud
takes seconds to load.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast

from everspot_core.problems import Problems


@dataclass(frozen=True)
class Cloud:
    """The components of one cloud: what exists once per account, a cluster, and the inputs of both.

    `sign_in` asks the cloud who asks, before anything else is asked or declared. `problems`: what adds the
    problems that the components themselves see in a section of this name, given the cluster's name and its inputs.
    `short`: inputs that can be written as their only mandatory text. `lacks`: settings that only other clouds have, by
    their path without positions in lists, and what to do instead.
    """

    account: Callable[[str, Any], Any]
    account_args: type
    cluster: Callable[[str, Any], Any]
    cluster_args: type
    sign_in: Callable[[], None]
    problems: dict[str, Callable[[Problems, str, Any], None]]
    short: dict[type, str]
    lacks: Mapping[str, str] = field(default_factory=dict)


class _Clouds(Mapping[str, Cloud]):
    """The clouds by their names; each is loaded when it is asked for."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules

    def __getitem__(self, name: str) -> Cloud:
        return cast(Cloud, import_module(self._modules[name]).CLOUD)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


CLOUDS: Mapping[str, Cloud] = _Clouds({"aws": "choice_aws", "gcp": "choice_gcp"})
