"""The kinds of resources of a cloud, for a reviewer of a change: the data in them, and the effect of a change on their
instances. Pulumi's names of types and properties are in each cloud's own `resources.py`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from everspot_clouds.base.deletion_rules import DeletionRule

Inputs = Mapping[str, Any]


@dataclass(frozen=True)
class FleetKind:
    """Resources that keep instances running.

    Attributes:
        size: path of the number of instances or units.
        template: beginnings of the paths that define a launch.
        pools: beginnings of the paths that define the types and zones.
        lower_ends: whether a lower size ends instances.
        chosen_by: the system that chooses those instances, for people.
        rolls: whether a new template replaces the instances immediately.
        maximum: path of the largest size. The cloud lowers a larger size to it. Empty without one.
        delete_ends: whether the deletion of the resource ends its instances.
    """

    size: str
    template: tuple[str, ...]
    pools: tuple[str, ...]
    lower_ends: Callable[[Inputs], bool]
    chosen_by: str
    rolls: Callable[[Inputs], bool]
    maximum: str = ""
    delete_ends: Callable[[Inputs], bool] = lambda _: True


@dataclass(frozen=True)
class TemplateKind:
    """Resources that say how an instance is launched. `image`: beginnings of the paths of its image."""

    image: tuple[str, ...]


@dataclass(frozen=True)
class ExpiryKind:
    """Resources that have a bucket's objects deleted.

    Attributes:
        rules: Returns the rules that delete objects.
        bucket: path of the bucket's name, where the rules are a resource of their own. Empty where the resource is the
            bucket.
    """

    rules: Callable[[Inputs], Sequence[DeletionRule]]
    bucket: str = ""


@dataclass(frozen=True)
class RetentionKind:
    """A property that says how long deleted data can be restored.

    Attributes:
        path: of the number.
        default: the number where none is declared.
        unit: of the number, for people.
    """

    path: str
    default: float
    unit: str


@dataclass(frozen=True)
class ResourceKinds:
    """Kinds of resources by Pulumi's types.

    Attributes:
        stateful: the data that is lost with a resource, for people.
        emptied: type of a bucket with the property that empties it when it is deleted. Without that property a bucket
            with objects is not deleted.
        kept_unless: path and value of the property without which the deletion of a resource keeps its data, by type.
        schedulers: types of the components whose instance is the scheduler.
        expiries: resources that have a bucket's objects deleted.
        readable: functions that return the keys whose ciphertexts a policy lets its holders decrypt, by type; None if
            the policy is not known.
        needed: resources that running instances need, with the effect on them if it is replaced or deleted, for people.
        needed_while_there: the same for resources of which only a replacement does harm: their deletion is of what is
            no longer used.
        settings: values of properties by which data is or may be lost, by type: path, value, and the effect, for
            people.
        switched_off: properties whose change from true to false loses data, by type: path, and the effect, for people.
        retentions: properties that say how long deleted data can be restored, by type.
    """

    fleets: Mapping[str, FleetKind] = field(default_factory=dict)
    templates: Mapping[str, TemplateKind] = field(default_factory=dict)
    stateful: Mapping[str, str] = field(default_factory=dict)
    emptied: Mapping[str, str] = field(default_factory=dict)
    kept_unless: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    schedulers: frozenset[str] = frozenset()
    expiries: Mapping[str, ExpiryKind] = field(default_factory=dict)
    readable: Mapping[str, Callable[[Inputs], frozenset[str] | None]] = field(default_factory=dict)
    needed: Mapping[str, str] = field(default_factory=dict)
    needed_while_there: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, tuple[tuple[str, Any, str], ...]] = field(default_factory=dict)
    switched_off: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    retentions: Mapping[str, RetentionKind] = field(default_factory=dict)


def joined(*kinds: ResourceKinds) -> ResourceKinds:
    """Return the kinds of several clouds: an environment may have resources of each."""
    return ResourceKinds(
        fleets={name: kind for group in kinds for name, kind in group.fleets.items()},
        templates={name: kind for group in kinds for name, kind in group.templates.items()},
        stateful={name: lost for group in kinds for name, lost in group.stateful.items()},
        emptied={name: path for group in kinds for name, path in group.emptied.items()},
        kept_unless={name: setting for group in kinds for name, setting in group.kept_unless.items()},
        schedulers=frozenset().union(*(group.schedulers for group in kinds)),
        expiries={name: kind for group in kinds for name, kind in group.expiries.items()},
        readable={name: read for group in kinds for name, read in group.readable.items()},
        needed={name: effect for group in kinds for name, effect in group.needed.items()},
        needed_while_there={name: effect for group in kinds for name, effect in group.needed_while_there.items()},
        settings={name: settings for group in kinds for name, settings in group.settings.items()},
        switched_off={name: settings for group in kinds for name, settings in group.switched_off.items()},
        retentions={name: kind for group in kinds for name, kind in group.retentions.items()},
    )
