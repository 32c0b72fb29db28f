"""The cost of a change, from the resources that a preview declares before and after it, on whichever clouds."""

from collections.abc import Mapping, Sequence
from dataclasses import fields

from everspot_core.catalogue import Catalogue, builtin
from everspot_core.declared import Declared
from everspot_core.estimate.adding import estimate
from everspot_core.estimate.asked import AskedFor
from everspot_core.estimate.model import Estimate
from everspot_core.estimate.recent import Recent

from everspot_clouds.aws import estimate as aws
from everspot_clouds.aws import fixed_prices
from everspot_clouds.gcp import estimate as gcp

_CLOUDS = {"aws": aws.asked, "gcp": gcp.asked}
_NO_REGIONS: Mapping[str, str] = {}


def estimated(
    before: Sequence[Declared] | None,
    after: Sequence[Declared] | None,
    *,
    regions: Mapping[str, str] = _NO_REGIONS,
    catalogue: Catalogue | None = None,
    recent: Recent | None = None,
) -> Estimate:
    """What a change costs a month.

    Args:
        before: All resources as they are declared now, components and providers too; None if that is not known. An
            environment that does not exist yet has none: an empty list.
        after: The same as the change declares them; None if the preview failed.
        regions: The region by cloud (`aws`, `gcp`), where the settings say it. Else the providers among the resources
            are asked, and the zones that resources name.
        catalogue: Default: the one that comes with Everspot.
        recent: What the cluster's ledger tells of the last month.
    """
    known = builtin() if catalogue is None else catalogue
    was, will = (None if side is None else asked_of(side, regions) for side in (before, after))
    return estimate(was, will, known, recent, as_of=fixed_prices.AS_OF)


def asked_of(resources: Sequence[Declared], regions: Mapping[str, str] = _NO_REGIONS) -> AskedFor:
    """What resources ask for, on all clouds together."""
    parts = [ask(resources, regions.get(cloud)) for cloud, ask in _CLOUDS.items()]
    return AskedFor(**{field.name: sum((getattr(one, field.name) for one in parts), ()) for field in fields(AskedFor)})
