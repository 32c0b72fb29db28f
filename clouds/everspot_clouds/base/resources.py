"""What kinds of resources a cloud has, as far as a reviewer of a change asks: what they hold, and what becomes of the
instances when they change. Pulumi's names of types and properties stand in each cloud's own `resources.py`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Inputs = Mapping[str, Any]


@dataclass(frozen=True)
class FleetKind:
    """Resources that keep instances running.

    `size`: path of the number of instances or units; `template`: beginnings of the paths that say what is launched;
    `pools`: beginnings of those that say of what types and where; `lower_ends`: whether a lower size ends instances;
    `chosen_by`: who chooses those, for people; `rolls`: whether a new template replaces the instances at once.
    """

    size: str
    template: tuple[str, ...]
    pools: tuple[str, ...]
    lower_ends: Callable[[Inputs], bool]
    chosen_by: str
    rolls: Callable[[Inputs], bool]


@dataclass(frozen=True)
class TemplateKind:
    """Resources that say how an instance is launched. `image`: beginnings of the paths of its image."""

    image: tuple[str, ...]


@dataclass(frozen=True)
class ResourceKinds:
    """Kinds of resources by Pulumi's types.

    `stateful`: what is lost with one, for people; `emptied`: type of a bucket with the property that has it emptied
    when it is deleted, without which a bucket that holds something is not deleted; `schedulers`: types of the
    components whose instance is the scheduler.
    """

    fleets: Mapping[str, FleetKind] = field(default_factory=dict)
    templates: Mapping[str, TemplateKind] = field(default_factory=dict)
    stateful: Mapping[str, str] = field(default_factory=dict)
    emptied: Mapping[str, str] = field(default_factory=dict)
    schedulers: frozenset[str] = frozenset()


def joined(*kinds: ResourceKinds) -> ResourceKinds:
    """The kinds of several clouds: an environment may have resources of each."""
    return ResourceKinds(
        fleets={name: kind for group in kinds for name, kind in group.fleets.items()},
        templates={name: kind for group in kinds for name, kind in group.templates.items()},
        stateful={name: lost for group in kinds for name, lost in group.stateful.items()},
        emptied={name: path for group in kinds for name, path in group.emptied.items()},
        schedulers=frozenset().union(*(group.schedulers for group in kinds)),
    )
